"""LoRA adapters: files read strictly, bound to the layers of components, applied around single forwards."""
