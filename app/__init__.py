"""The Gradio app: a chat with the decoders of `dart`, and what they did shown while they do it."""
