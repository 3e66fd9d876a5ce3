"""Operations on topics: view, copy, compare, analyze."""
