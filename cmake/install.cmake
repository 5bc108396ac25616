# replaced by the packaging room
