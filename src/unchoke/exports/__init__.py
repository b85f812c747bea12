"""Models to take away: one file from pixels to answers, for runtimes that know nothing of unchoke.

The whole way as one network (`photo_input`, `whole_model`, `mask_model`), files of it (`model_files`), how they are compared with
the run (`export_photos`, `export_masks`, `agreement`), and what is written beside them (`model_card`, `example_script`).
"""
