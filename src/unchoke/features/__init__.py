"""The frozen part of a network, run once over every image or patch, and its features kept.

In come items and a way to read each; out comes a `FeatureStore` of float16 rows. `encoders.py` and `pyramid.py` build networks,
`cut.py` divides them, `engines.py` and `engine_openvino.py` run them, `agree.py` and `prepare_engine.py` choose the engine,
`extraction.py` runs the jobs. Nothing is trained here.
"""
