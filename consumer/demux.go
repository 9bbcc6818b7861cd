package consumer

// demux finds the partition of a subject.
type demux struct {
	bySubject map[string]*run // of filters without wildcards, and what was found before
	patterns  []*run
	cached    int
}

// demuxCache bounds how many subjects are remembered.
const demuxCache = 50_000

func (d *demux) add(x *run) {
	if !hasWildcard(x.subject) {
		d.bySubject[x.subject] = x
		return
	}
	d.patterns = append(d.patterns, x)
}

func (d *demux) find(subject string) *run {
	if x := d.bySubject[subject]; x != nil || len(d.patterns) == 0 {
		return x
	}
	for _, x := range d.patterns {
		if matches(x.subject, subject) {
			if d.cached < demuxCache {
				d.cached++
				d.bySubject[subject] = x
			}
			return x
		}
	}
	return nil
}
