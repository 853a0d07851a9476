"""Values in Arrow and NumPy: types, numbers in texts, texts as whole columns.

- `texts`: Texts as whole columns: code points, words of names, numbers in texts, distinct values.
- `values`: Values in Arrow and NumPy: the types that columns have in common, and their conversion.
"""

__all__ = ["texts", "values"]
