package consumer

// giveBack returns messages that were handed out and not acknowledged to the front of the buffer: they are handed out again. They
// are those of the present generation that follow the acknowledged ones, in order.
func (x *run) giveBack(ms []Message) {
	x.mu.Lock()
	var back []Message
	for _, m := range ms {
		if x.live && m.gen == x.gen && m.Sequence > x.acked {
			back = append(back, m)
			x.bytes += messageSize(&m)
		}
	}
	if len(back) > 0 {
		if x.counted {
			x.shared.used.Add(int64(len(back)))
		}
		x.buf, x.head = append(back, x.buf[x.head:]...), 0
		x.handed = x.handed[:0]
	}
	x.mu.Unlock()
	x.r.enqueue(x)
}

// dropFront takes the message at the front out of the buffer. Held: mu.
func (x *run) dropFront() {
	front := &x.buf[x.head]
	x.bytes -= messageSize(front)
	*front = Message{}
	x.head++
	if x.counted {
		x.shared.used.Add(-1)
	}
}

// acknowledged reports whether a message is known to be processed.
func (x *run) acknowledged(m Message) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return m.gen == x.gen && m.Sequence <= x.acked
}
