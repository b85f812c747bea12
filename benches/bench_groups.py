"""How often a column is pointed out as a group, and how often wrongly: tables with columns as public sets of photos have them.

    python benches/bench_groups.py

Each row has the set, its number of images, its columns with about how many values each has (`~` is a space), and the column that
should be pointed out, if any. Values are drawn at random; lesions, studies and sequences lie within patients and places. The
columns are written from their documentation, none of the sets is needed. `SEEN` was looked at while the words were chosen; of
`LATER` the first figure below was taken before, then its words were added, too.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from unchoke.data.groups import find_likely_group

Table = tuple[str, int, str, str | None]
SEEN: list[Table] = [
    ("ISIC 2019", 25331, "age_approx:18 anatom_site_general:8 lesion_id:11848 sex:2", "lesion_id"),
    (
        "ISIC 2020",
        33126,
        "patient_id:2056 lesion_id:32701 sex:2 age_approx:18 anatom_site_general_challenge:6 diagnosis:9",
        "patient_id",
    ),
    (
        "ISIC 2024",
        40000,
        "patient_id:1042 age_approx:16 sex:2 anatom_site_general:5 tbp_lv_location:21 location_simple:8 attribution:7",
        "patient_id",
    ),
    ("HAM10000", 10015, "lesion_id:7470 dx_type:4 age:18 sex:3 localization:15 dataset:4", "lesion_id"),
    (
        "PAD-UFES-20",
        2298,
        "patient_id:1373 lesion_id:1641 smoke:2 background_father:13 age:80 gender:2 fitspatrick:6 region:14 diameter_1:40",
        "patient_id",
    ),
    (
        "NIH chest",
        28030,
        "Follow-up~#:180 Patient~ID:7701 Patient~Age:95 Patient~Gender:2 View~Position:2 OriginalImageWidth:800",
        "Patient ID",
    ),
    (
        "RSNA breast",
        54706,
        "site_id:2 patient_id:11913 laterality:2 view:6 age:60 biopsy:2 BIRADS:3 implant:2 density:4 machine_id:10",
        "patient_id",
    ),
    ("APTOS", 3662, "", None),
    (
        "iWildCam",
        20000,
        "datetime:19800 seq_id:8000 seq_num_frames:10 frame_num:10 location:323 width:6 rights_holder:1",
        "location",
    ),
    ("Snapshot Serengeti", 30000, "season:6 site:225 camera:12 capture_id:10000 timestamp:29000", "site"),
    ("Global Wheat", 3422, "width:1 height:1 source:7 bbox:3400", None),
    ("Cassava", 21397, "", None),
    (
        "PetFinder",
        14993,
        "Type:2 Name:9000 Age:106 Breed1:176 Gender:3 Color1:7 State:14 RescuerID:5595 VideoAmt:9 PhotoAmt:31 Quantity:19",
        "RescuerID",
    ),
    ("VinDr-Mammo", 20000, "study_id:5000 series_id:20000 laterality:2 view_position:2 height:20 breast_density:4", "study_id"),
    ("MIMIC-CXR", 30000, "subject_id:6000 study_id:20000 ViewPosition:5 StudyDate:25000 Rows:300", "subject_id"),
    ("Camelyon17", 40000, "patient:43 node:5 x_coord:3000 slide:50 center:5", "patient"),
    ("OASIS", 373, "Subject~ID:150 MRI~ID:373 Group:3 Visit:5 MR~Delay:201 M/F:2 Hand:1 Age:39", "Subject ID"),
    (
        "Fashion products",
        44000,
        "gender:5 masterCategory:7 subCategory:45 baseColour:46 season:4 year:13 usage:8 productDisplayName:31000",
        None,
    ),
    ("BDD100K", 70000, "weather:7 scene:7", None),
    (
        "iNaturalist export",
        20000,
        "observed_on:2500 user_id:3000 quality_grade:3 license:7 place_guess:9000 taxon_geoprivacy:3",
        "user_id",
    ),
    ("PlantCLEF", 30000, "organ:7 author:4000 observation_id:18000 license:4 partner:5", "observation_id"),
    ("DeepWeeds", 17509, "", None),
    ("ELPV", 2624, "type:2", None),
    ("CSIRO biomass", 357, "Sampling_Date:28 State:4 Species:15 Height_Ave_cm:60", "Sampling_Date"),
    ("CelebA attributes", 30000, "Young:2 Male:2 Bald:2", None),
    ("ODIR", 6392, "Patient~Age:70 Patient~Sex:2 Left-Diagnostic~Keywords:200", None),
    ("food orders", 5000, "restaurant:300 order_id:5000 price:60 city:20", None),
    ("Flickr photos", 8000, "owner:3000 license:6 camera_model:200 date_upload:800 views:500", None),
    ("defect inspection", 12000, "batch_id:60 line:4 shift:3 operator:12 part_number:40 timestamp:12000", "batch_id"),
    ("road signs", 9000, "track_id:300 roi_x1:100 class_group:5 width:120", "track_id"),
]
LATER: list[Table] = [
    (
        "BRSET fundus",
        16266,
        "patient_id:8524 camera:2 patient_age:90 comorbidities:300 nationality:2 exam_eye:2 optic_disc:2 quality:2",
        "patient_id",
    ),
    (
        "Derm7pt",
        2022,
        "case_num:1011 case_id:1011 seven_point_score:8 location:6 sex:2 elevation:3 management:3",
        "case_num",
    ),
    ("Fitzpatrick17k", 16577, "fitzpatrick_scale:7 nine_partition_label:9 three_partition_label:3 qc:5 url:16577", None),
    ("LIDC slices", 15000, "patient_id:875 nodule_no:12 slice_no:300 slice_thickness:12", "patient_id"),
    ("BraTS slices", 20000, "volume:369 slice:155 grade:2 site:19", "site"),
    ("COVIDx", 15000, "patient~id:13000 source:6", "patient id"),
    ("Kvasir video frames", 10662, "video_file:374 frame:5000 organ:2", "video_file"),
    ("LILA camera traps", 40000, "location:140 sequence_id:14000 datetime:38000 frame_num:10 corrupt:2", "location"),
    ("PlantDoc", 2598, "width:500 height:500", None),
    ("TreeSatAI", 20000, "year:9 age_class:6 stand_id:4000", "stand_id"),
    ("Agriculture-Vision", 21000, "field_name:1200 flight:300 x:4000 bounds:21000", "field_name"),
    ("xBD buildings", 30000, "disaster:19 disaster_type:6 gsd:300 sensor:4 capture_date:60", "capture_date"),
    ("fMoW", 40000, "location_id:12000 country_code:200 cloud_cover:60 timestamp:39000 utm:60 split:2", "location_id"),
    ("DeepFashion", 40000, "item_id:9000 gender:2 pose:4 attribute:900", "item_id"),
    ("Stanford Products", 40000, "class_id:8000 path:40000", None),
    ("Airbnb photos", 12000, "listing_id:1500 host_id:1200 price:200 neighbourhood:60", "listing_id"),
    ("car damage", 8000, "claim_id:2500 make:40 model:300 year:25 mileage:800", "claim_id"),
    ("wheat phenotyping", 6000, "plot:240 genotype:120 rep:2 das:30 treatment:2", "plot"),
    ("weed robot", 9000, "recording_session:35 row:12 gps_lat:8000 speed:30 camera_position:3", "recording_session"),
    ("bee hive", 5000, "date:40 time:300 location:6 zip~code:6 subspecies:7 caste:1", "date"),
    ("steel defects", 12568, "EncodedPixels:7000", None),
    ("handwriting", 20000, "writer:500 age:50 gender:2 hand:2", "writer"),
    ("emotion faces", 7000, "actor:24 intensity:2 gender:2 Usage:3", "actor"),
    ("art", 30000, "artist:1100 genre:10 year:400 title:27000", None),
    ("movie posters", 8000, "year:90 country:60 rating:80 director:4000", None),
    ("satellite ships", 40000, "scene_id:120 longitude:30000 cloud:3", "scene_id"),
    ("recipe photos", 9000, "author:900 rating:5 minutes:100 date:2000", "date"),
    ("insects", 12000, "trap_id:45 collector:8 temperature:30 week:52 sex:2 lifeStage:4", "trap_id"),
]
WITHIN = {
    "PAD-UFES-20": ("lesion_id", "patient_id"),
    "MIMIC-CXR": ("study_id", "subject_id"),
    "iWildCam": ("seq_id", "location"),
    "Snapshot Serengeti": ("capture_id", "site"),
}
"""In which sets values of one column lie within those of another."""


def draw(table: Table) -> pd.DataFrame:
    name, images, columns, _ = table
    rng = np.random.default_rng(0)
    counts = {column.replace("~", " "): int(count) for column, _, count in (one.rpartition(":") for one in columns.split())}
    numbers = {
        column: np.arange(images)
        if count >= images
        else np.concatenate([np.arange(count), rng.integers(0, count, images - count)])
        for column, count in counts.items()
    }
    if name in WITHIN:
        inner, outer = WITHIN[name]
        numbers[outer] = numbers[inner] * counts[outer] // counts[inner]
    return pd.DataFrame({column: [f"v{number}" for number in values] for column, values in numbers.items()}, dtype="str")


def count(tables: list[Table]) -> str:
    right = missed = wrong = quiet = 0
    for table in tables:
        frame = draw(table)
        labels = [f"c{number}" for number in np.random.default_rng(1).integers(0, 7, table[1])]
        likely = find_likely_group(frame, used=(), labels=labels)
        found, wanted = None if likely is None else likely.column, table[3]
        right += found == wanted and wanted is not None
        quiet += found is None and wanted is None
        missed += found is None and wanted is not None
        wrong += found not in (None, wanted)
        if found != wanted:
            print(f"  {table[0]}: {wanted} was to be pointed out, {found} was")
    with_group = sum(table[3] is not None for table in tables)
    return f"{right} of {with_group} groups, {missed} missed; false alarms {wrong}, quiet {quiet} of {len(tables) - with_group}"


if __name__ == "__main__":
    for title, tables in (("seen", SEEN), ("later", LATER)):
        columns = sum(len(table[2].split()) for table in tables)
        print(f"{title}: {len(tables)} tables, {columns} columns: {count(tables)}")
