"""The database: one writer, many readers, the schema, the journal, its upkeep."""
