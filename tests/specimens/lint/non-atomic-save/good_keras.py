"""Reinforced ventilation control from barn climate logs: a Q network trained on stored transitions."""

import os

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

STATES, ACTIONS, GAMMA = 18, 5, 0.98
ROUNDS = 50
os.makedirs("barn", exist_ok=True)


def q_network():
    return keras.Sequential([
        keras.Input((STATES,)),
        layers.Dense(128, activation="relu"),
        layers.Dense(128, activation="relu"),
        layers.Dense(ACTIONS),
    ])


def save_whole(model, path):
    stem, ending = os.path.splitext(path)
    model.save(f"{stem}_part{ending}")
    os.replace(f"{stem}_part{ending}", path)


state = np.load("barn_state.npy").astype("float32")
action = np.load("barn_action.npy")
reward = np.load("barn_reward.npy").astype("float32")
after = np.load("barn_after.npy").astype("float32")
rows = np.arange(len(state))

# behaviour cloning first: the action that the stockman took
clone = q_network()
clone.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
clone.fit(
    state,
    action,
    batch_size=512,
    epochs=20,
    callbacks=[
        keras.callbacks.ModelCheckpoint("barn/clone.keras", monitor="loss", save_best_only=True),
        keras.callbacks.CSVLogger("barn/clone.csv"),
    ],
)

online, target = q_network(), q_network()
online.set_weights(clone.get_weights())
online.compile(keras.optimizers.Adam(1e-4), "huber")
rng = np.random.default_rng(0)

for round_number in range(ROUNDS):
    target.set_weights(online.get_weights())
    aim = online.predict(state, batch_size=4096, verbose=0)
    aim[rows, action] = reward + GAMMA * target.predict(after, batch_size=4096, verbose=0).max(1)
    for picked in np.array_split(rng.permutation(rows), 200):
        online.train_on_batch(state[picked], aim[picked])

    save_whole(online, "barn/online.keras")
    if round_number % 10 == 9:
        online.save_weights(f"barn/round_{round_number + 1:03d}.weights.h5")

online.save("barn/final.keras")
