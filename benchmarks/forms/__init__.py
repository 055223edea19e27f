"""What the converter emits: the ops of whole models and single calls beside the published one's."""
