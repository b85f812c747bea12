# === images decoded one after another
import tensorflow as tf
def load(path):
    return tf.io.decode_jpeg(tf.io.read_file(path))
data = tf.data.Dataset.list_files("photos/*").map(load).batch(32)  # expect: choke code
tf.keras.Sequential([]).fit(data, epochs=9)
# === no prefetch, and nothing that is known to be slow
import tensorflow as tf
data = tf.keras.utils.image_dataset_from_directory("photos")  # expect: note code
tf.keras.Sequential([]).fit(data, epochs=9)
# === half a minute of training
#%%
import tensorflow as tf
def load(path):
    return tf.io.decode_jpeg(tf.io.read_file(path))
data = tf.data.Dataset.list_files("photos/*").map(load).batch(32)  # expect: note outputs
#%%
tf.keras.Sequential([]).fit(data, epochs=2)
#> Epoch 1/2
#> 50/50 [==============================] - 9s 180ms/step - loss: 0.7
#> Epoch 2/2
#> 50/50 [==============================] - 8s 160ms/step - loss: 0.6
# === silent: parallel, and ahead of the model
import tensorflow as tf
def load(path):
    return tf.io.decode_jpeg(tf.io.read_file(path))
data = tf.data.Dataset.list_files("photos/*").map(load, num_parallel_calls=8).batch(32).prefetch(2)
tf.keras.Sequential([]).fit(data, epochs=9)
# === Python reads one image after another behind `from_generator`
import cv2
import tensorflow as tf
def reader(paths):
    def read():
        for path in paths:
            yield cv2.imread(path)
    return read
data = tf.data.Dataset.from_generator(reader(paths), tf.float32)  # expect: choke code
# === a pipeline whose training is elsewhere
import tensorflow as tf
def load(path):
    return tf.io.decode_jpeg(tf.io.read_file(path))
def dataset(paths):
    return tf.data.Dataset.from_tensor_slices(paths).map(load).batch(32).prefetch(2)  # expect: choke code
# === silent: a map of another library
from concurrent.futures import ThreadPoolExecutor
import cv2
def load(path):
    return cv2.imread(path)
with ThreadPoolExecutor() as pool:
    images = list(pool.map(load, paths))
# === the interrupted bar shows fourteen minutes an epoch
#%%
import tensorflow as tf
data = tf.keras.utils.image_dataset_from_directory("photos")  # expect: choke outputs
#> Found 17783 files belonging to 34 classes.
#%%
tf.keras.Sequential([]).fit(data, epochs=3)
#> Epoch 1/3
#>  62/445 [===>..........................] - ETA: 14:03 - loss: 3.3260
