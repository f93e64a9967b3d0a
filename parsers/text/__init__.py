"""The parser's protocol, times, prefixes, JSON documents, tables, metrics pages, blocks of bytes."""
