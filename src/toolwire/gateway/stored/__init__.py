"""The requests about stored responses and conversations, background responses, and compaction."""
