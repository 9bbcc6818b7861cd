// Package blob turns a value of any size into pieces that a KV bucket can hold, and back.
//
// The value is compressed. What fits into [ChunkSize] is one piece, the root, which is the compressed value itself. Anything
// larger is cut into chunks, stored under the hashes of their bytes; the root is then a manifest that lists them:
//
//	root   gzip stream (1f 8b ...)                                                          or
//	       {"schema":1,"sha256":"<of the value>","size":<of the gzip stream>,"chunks":["<sha256 of the chunk>", ...]}
//	chunk  at most ChunkSize bytes of the gzip stream; all but the last have exactly that many
//
// The caller decides under which keys root and chunks lie, writes chunks before the root that names them, and removes a chunk
// only when no root names it any more. A value is right as a whole or refused: [Unpack] checks each chunk, the length and the
// hash of the value, and never allocates much more than its limit, whatever the pieces claim.
//
// The same value gives the same pieces within one release of Go. Another release may compress differently: then the chunks
// have other hashes, and the hash of the value is still the same. So identify values by [Hash], not by their root.
package blob
