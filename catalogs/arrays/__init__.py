"""Values in Arrow and NumPy: types, numbers in texts, texts as whole columns."""
