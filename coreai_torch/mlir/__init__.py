"""Read and change MLIR modules: the editor, and the evaluation of constants."""
