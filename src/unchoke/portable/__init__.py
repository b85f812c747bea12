"""Models to take away: one file from pixels to answers, for runtimes that know nothing of unchoke.

The whole way as one network (`photo_input`, `whole_model`), files of it (`model_files`), what runs them here to compare
(`agreement`), and what is written beside them (`model_card`, `example_script`).
"""
