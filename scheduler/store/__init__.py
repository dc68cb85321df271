"""The database: one writer, many readers, the schema, the journal, maintenance. No decisions."""
