from __future__ import annotations

from pathlib import Path

from errors import refused
from unchoke.scenes.scan_scenes import scan_scenes


def ids(scanned):
    return [scene.scene_id for scene in scanned.scenes]


def names(scene):
    return [band.name for band in scene.bands]


def said(scanned):
    return {choice.name: str(choice.value) for choice in scanned.choices}


def write_table(root: Path, text: str) -> Path:
    file = root / "scenes.csv"
    file.write_text(text)
    return file


def test_a_folder_of_band_files_is_one_scene(make_files):
    root = make_files([f"l8_B{number}.tif" for number in (1, 2, 10, 11)] + ["l8_BQA.tif"])
    scanned = scan_scenes(root)
    (scene,) = scanned.scenes
    assert scene.scene_id == "l8"
    assert names(scene) == ["B1", "B2", "B10", "B11"]
    assert scene.bands[1].path == str(root / "l8_B2.tif")
    assert said(scanned)["left out"] == "BQA"
    assert not scanned.findings


def test_scenes_in_one_folder_by_name_before_band(make_files):
    root = make_files([f"LC08_{day}_B{number}.TIF" for day in ("0101", "0117") for number in (2, 3)])
    scanned = scan_scenes(root)
    assert ids(scanned) == ["LC08_0101", "LC08_0117"]
    assert all(names(scene) == ["B2", "B3"] for scene in scanned.scenes)


def test_scenes_named_after_folders(make_files):
    root = make_files([f"{place}/B{number}.tif" for place in ("north", "south") for number in (2, 3)])
    assert ids(scan_scenes(root)) == ["north", "south"]
    deeper = make_files([f"{place}/l8_B{number}.tif" for place in ("east/a", "east/b") for number in (2, 3)])
    assert ids(scan_scenes(deeper / "east")) == ["a_l8", "b_l8"]


def test_sentinel_product_finest_file_per_band(make_files):
    inside = "S2A_MSIL2A_20180101.SAFE/GRANULE/L2A_T33UUP/IMG_DATA"
    root = make_files(
        [f"{inside}/R{metres}m/T33UUP_2018_B02_{metres}m.jp2" for metres in (10, 20, 60)]
        + [f"{inside}/R20m/T33UUP_2018_B8A_20m.jp2", f"{inside}/R60m/T33UUP_2018_B01_60m.jp2"]
        + [f"{inside}/R20m/T33UUP_2018_SCL_20m.jp2", f"{inside}/R10m/T33UUP_2018_TCI_10m.jp2"]
        + ["S2A_MSIL2A_20180101.SAFE/GRANULE/L2A_T33UUP/QI_DATA/MSK_CLDPRB_20m.jp2"]
    )
    scanned = scan_scenes(root)
    (scene,) = scanned.scenes
    assert scene.scene_id == "T33UUP_2018"
    assert names(scene) == ["B01", "B02", "B8A"]
    assert scene.bands[1].path.endswith("R10m/T33UUP_2018_B02_10m.jp2")
    assert said(scanned)["B02 file"] == "10 m"


def test_bands_found_by_number_keep_spelling(make_files):
    root = make_files([f"s2_{band}.jp2" for band in ("B02", "B03", "B08", "B8A")])
    (scene,) = scan_scenes(root, bands=("B8", "B2")).scenes
    assert names(scene) == ["B08", "B02"]
    (scene,) = scan_scenes(root, bands=("B8A",)).scenes
    assert names(scene) == ["B8A"]


def test_other_and_quality_bands_when_named(make_files):
    root = make_files(["a_red.tif", "a_nir.tif", "b_red.tif", "b_nir.tif", "a_QA_PIXEL.tif", "b_QA_PIXEL.tif"])
    scanned = scan_scenes(root, bands=("nir", "red", "QA_PIXEL"))
    assert ids(scanned) == ["a", "b"]
    assert names(scanned.scenes[0]) == ["nir", "red", "QA_PIXEL"]


def test_missing_band_named_others_kept(make_files):
    root = make_files(["a/x_B2.tif", "a/x_B3.tif", "b/y_B2.tif"])
    scanned = scan_scenes(root, bands=("B2", "B3"))
    assert ids(scanned) == ["x"]
    (finding,) = scanned.findings
    assert (finding.code, finding.severity) == ("missing-band", "error")
    assert "y" in finding.message and "B3" in finding.message
    assert finding.path == str(root / "b")


def test_default_bands_are_common_to_all_scenes(make_files):
    root = make_files(["a_B2.tif", "a_B3.tif", "a_B4.tif", "b_B02.tif", "b_B03.tif"])
    scanned = scan_scenes(root)
    assert [names(scene) for scene in scanned.scenes] == [["B2", "B3"], ["B02", "B03"]]
    assert "B4 (1 of 2)" in said(scanned)["left out"]


def test_no_common_bands_uses_those_of_most(make_files):
    root = make_files(["a_B2.tif", "b_B2.tif", "c_B7.tif"])
    scanned = scan_scenes(root)
    assert ids(scanned) == ["a", "b"]
    assert [finding.code for finding in scanned.findings] == ["missing-band"]


def test_a_band_that_no_scene_has_is_wrong_usage(make_files):
    with refused("no-such-band", "B9", "B2, B3"):
        scan_scenes(make_files(["a_B2.tif", "a_B3.tif"]), bands=("B2", "B9"))


def test_files_that_are_no_bands_are_each_a_scene(make_files):
    root = make_files(["207.tif", "21.tif", "photo.jpg", "notes.txt", "preview.jp2"])
    scanned = scan_scenes(root)
    assert ids(scanned) == ["207", "21", "photo"]
    assert all(scene.file is not None and not scene.bands for scene in scanned.scenes)
    assert said(scanned)["left out"] == "preview.jp2"


def test_other_files_beside_bands_are_left_out_and_said(make_files):
    scanned = scan_scenes(make_files(["a_B2.tif", "a_B3.tif", "dem.tif", "QA.tif"]))
    assert ids(scanned) == ["a"]
    told = [str(choice.value) for choice in scanned.choices if choice.name == "left out"]
    assert "dem.tif" in told and "QA.tif" in told


def test_ids_are_unique_and_safe_in_any_letter_case(make_files):
    root = make_files(["one/a b.tif", "two/A_B.tif", "three/c.tif"])
    found = ids(scan_scenes(root))
    assert len({one.lower() for one in found}) == 3
    assert all("/" not in one and " " not in one for one in found)


def test_folders_named_after_splits_give_the_split(make_files):
    root = make_files(["train/a.tif", "val/b.tif", "test/c.tif"])
    assert {scene.scene_id: scene.split for scene in scan_scenes(root).scenes} == {"a": "train", "b": "val", "c": "test"}


def test_one_file_is_one_scene(make_files):
    root = make_files(["mosaic.tif"])
    (scene,) = scan_scenes(root / "mosaic.tif").scenes
    assert (scene.scene_id, scene.file) == ("mosaic", str(root / "mosaic.tif"))


def test_what_cannot_be_scenes_is_refused(make_files, tmp_path):
    root = make_files(["notes.md"])
    with refused("no-scenes", str(root)):
        scan_scenes(root)
    with refused("not-a-scene", "notes.md"):
        scan_scenes(root / "notes.md")
    with refused("no-such-file", str(tmp_path / "gone")):
        scan_scenes(tmp_path / "gone")
    with refused("columns-without-table", "--group"):
        scan_scenes(root, group="site")


def test_one_label_raster_for_every_scene(make_files):
    root = make_files(["a.tif", "b.tif", "label.tif"])
    scanned = scan_scenes(root, label="label.tif")
    assert ids(scanned) == ["a", "b"]
    assert {scene.label for scene in scanned.scenes} == {str(root / "label.tif")}


def test_labels_matched_by_name_missing_warns(make_files):
    root = make_files(["images/1.tif", "images/2.tif", "images/3.tif", "masks/1.png", "masks/2_mask.tif"])
    scanned = scan_scenes(root, label="masks")
    labels = {scene.scene_id: scene.label and Path(scene.label).name for scene in scanned.scenes}
    assert labels == {"1": "1.png", "2": "2_mask.tif", "3": None}
    (finding,) = scanned.findings
    assert (finding.code, finding.severity) == ("missing-label", "warning") and "3" in finding.message


def test_band_scene_labels_matched_by_stem(make_files):
    root = make_files(["s/a/l8_B2.tif", "s/b/l8_B2.tif", "labels/a.tif", "labels/b.tif"])
    scanned = scan_scenes(root / "s", label=str(root / "labels"))
    assert [Path(scene.label or "").name for scene in scanned.scenes] == ["a.tif", "b.tif"]


def test_a_label_that_does_not_exist_is_wrong_usage(make_files):
    with refused("no-such-label", "nowhere.tif"):
        scan_scenes(make_files(["a.tif"]), label="nowhere.tif")


def test_a_table_with_a_column_per_band(make_files):
    root = make_files(["x/1.tif", "x/2.tif", "y/1.tif", "labels/x.tif"])
    table = write_table(
        root, "scene,B2,B3,truth,site,part\nx,x/1.tif,x/2.tif,labels/x.tif,s1,train\ny,y/1.tif,y/2.tif,,s2,test\n"
    )
    scanned = scan_scenes(table, label="truth", group="site", split="part")
    (scene,) = scanned.scenes
    assert (scene.scene_id, scene.group, scene.split, names(scene)) == ("x", "s1", "train", ["B2", "B3"])
    assert scene.label == str(root / "labels/x.tif")
    (finding,) = scanned.findings
    assert finding.code == "missing-band" and "y" in finding.message and "y/2.tif" in finding.message


def test_a_table_with_named_band_columns(make_files):
    root = make_files(["1.tif", "2.tif"])
    table = write_table(root, "id,red,nir\na,1.tif,2.tif\n")
    (scene,) = scan_scenes(table, bands=("nir", "red")).scenes
    assert names(scene) == ["nir", "red"] and scene.bands[0].path == str(root / "2.tif")
    with refused("no-such-column", "'green'"):
        scan_scenes(table, bands=("nir", "green"))


def test_a_table_of_files_that_hold_all_bands(make_files):
    root = make_files(["images/264.tif", "images/256.tif", "masks/264.png"])
    text = "image,mask,share\nimages/264.tif,masks/264.png,0.1\nimages\\256.tif,,0.2\nimages/9.tif,,0.3\n"
    scanned = scan_scenes(write_table(root, text), label="mask")
    assert ids(scanned) == ["264", "256"]
    assert [scene.file for scene in scanned.scenes] == [str(root / "images/264.tif"), str(root / "images/256.tif")]
    assert [finding.code for finding in scanned.findings] == ["missing-file", "missing-label"]
    assert "images/9.tif" in scanned.findings[0].message


def test_a_table_with_a_row_per_band(make_files):
    root = make_files(["a2.tif", "a3.tif", "b2.tif"])
    text = "scene,band,path,site\na,B3,a3.tif,s\na,B2,a2.tif,s\nb,B2,b2.tif,t\nb,B3,b3.tif,t\n"
    scanned = scan_scenes(write_table(root, text), group="site")
    (scene,) = scanned.scenes
    assert (scene.scene_id, names(scene), scene.group) == ("a", ["B2", "B3"], "s")
    assert "b3.tif" in scanned.findings[0].message


def test_a_band_that_comes_twice_is_named(make_files):
    root = make_files(["a2.tif", "a3.tif"])
    scanned = scan_scenes(write_table(root, "scene,band,path\na,B2,a2.tif\na,B02,a3.tif\n"))
    assert scanned.scenes[0].bands[0].path == str(root / "a2.tif")
    assert scanned.findings[0].code == "repeated-band" and "a3.tif" in scanned.findings[0].message
    with refused("duplicate-bands", "B02", "--bands B2"):
        scan_scenes(root, bands=("B2", "B02"))


def test_a_table_may_name_folders_of_bands(make_files):
    root = make_files(["p1/x_B2.tif", "p1/x_B3.tif", "p2/y_B2.tif", "p2/y_B3.tif", "p3/readme.txt"])
    scanned = scan_scenes(write_table(root, "path,year\np1,2019\np2,2020\np3,2021\n"))
    assert ids(scanned) == ["p1", "p2"] and names(scanned.scenes[0]) == ["B2", "B3"]
    assert "p3" in scanned.findings[0].message


def test_table_paths_relative_then_images(make_files, tmp_path):
    root = make_files(["near.tif", "far/deep/other.tif"])
    table = write_table(tmp_path, "path\ndata/near.tif\nother.tif\n")
    scanned = scan_scenes(table, images=[root / "far"])
    assert [scene.file for scene in scanned.scenes] == [str(root / "near.tif"), str(root / "far/deep/other.tif")]


def test_a_table_that_says_too_little_is_refused(make_files):
    root = make_files(["a.tif"])
    with refused("no-scene-column", "'site'", "'year'"):
        scan_scenes(write_table(root, "site,year\nx,2019\n"))
    with refused("unknown-split", "'part'", "'holdout'"):
        scan_scenes(write_table(root, "path,part\na.tif,holdout\n"), split="part")
    with refused("no-such-column", "'nope'"):
        scan_scenes(write_table(root, "path\na.tif\n"), group="nope")
