package inspect

// OffsetSamples returns how often the watcher has read how far the history of writes is.
func (w *Watcher) OffsetSamples() int { return len(w.replication.offsets) }
