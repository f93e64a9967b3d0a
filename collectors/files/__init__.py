"""Files that are read: followed through rotation, heard by inotify, or a whole cluster archive."""
