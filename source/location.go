package source

// Location returns the bucket and the key of the list.
func (s *KVSource) Location() (bucket, key string) { return s.bucket, s.key }
