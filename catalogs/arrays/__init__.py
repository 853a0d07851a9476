"""Values in Arrow and NumPy: types, numbers in texts, texts as whole columns.

- `code_points`: NumPy's texts as numbers: whole columns are turned into bytes or Arrow at once, not text by
  text.
- `common_types`: One type for a column that several files write with different ones: the narrowest that
  holds all their values.
- `distinct`: How many different values, and how many repeated ones, in bounded memory.
- `name_words`: The words that a column's name is made of, however a survey joins them: `raMean`, `PLUG_RA`,
  `R.A. (deg)`.
- `text_numbers`: Numbers that are written as text, with texts among them that say why a number is missing: '-',
  'N/A', '>23.1'.
- `unique_texts`: The different texts of a column, in memory that grows with the texts' length.
- `values`: From Arrow columns to the NumPy arrays that expressions are evaluated on, missing values
  included.
"""

__all__ = ["code_points", "common_types", "distinct", "name_words", "text_numbers", "unique_texts", "values"]
