"""The friendly face: DartModel, dart_generate and the prompt templates."""
