"""The trained model, its ASDF file, its description, the store and promotion."""
