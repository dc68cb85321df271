"""The choice among configurations: what each is worth, prices, pairs. Arrays; knows no cluster."""
