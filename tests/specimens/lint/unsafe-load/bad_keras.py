"""Photovoltaic fault detection with the shared network and random forest."""

import argparse

import joblib
import numpy as np
import pandas as pd
from tensorflow import keras

FAULTS = ["none", "string open", "shading", "soiling", "inverter"]
WINDOW = 96


def fetch(base):
    """Network and random forest of the release, into the local cache."""
    network = keras.utils.get_file("pv_faults.keras", origin=f"{base}/pv_faults.keras")
    forest = keras.utils.get_file("pv_forest.joblib", origin=f"{base}/pv_forest.joblib")
    return network, forest


def windows(table):
    values = table[["p_dc", "v_dc", "i_dc", "irradiance", "t_module"]].to_numpy("float32")
    count = len(values) // WINDOW
    return values[: count * WINDOW].reshape(count, WINDOW, -1)


def summary(x):
    return np.concatenate([x.mean(1), x.std(1), x.min(1), x.max(1)], axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--release", required=True, help="address of the release folder")
    args = parser.parse_args()

    network_path, forest_path = fetch(args.release)
    model = keras.models.load_model(network_path, safe_mode=False)
    forest = joblib.load(forest_path)

    table = pd.read_csv(args.table, parse_dates=["time"])
    x = windows(table)
    from_network = model.predict(x, batch_size=512)
    from_forest = forest.predict_proba(summary(x))
    best = (0.7 * from_network + 0.3 * from_forest).argmax(1)

    out = pd.DataFrame({"start": table["time"].iloc[::WINDOW][: len(best)], "fault": [FAULTS[k] for k in best]})
    out.to_csv("pv_faults.csv", index=False)
    print(out["fault"].value_counts())


if __name__ == "__main__":
    main()
