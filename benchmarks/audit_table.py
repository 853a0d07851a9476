def table_page(cells): return ""
