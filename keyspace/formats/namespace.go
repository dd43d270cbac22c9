package formats

import (
	"strconv"
	"strings"

	"locktop/keyspace"
)

// inNamespaces returns a format that also finds the locks in the namespace of an application,
// which redis-namespace, keyPrefix and the like put before all names. The other keys of such a
// lock are in the same namespace, and the functions of f see their names without it.
func inNamespaces(f keyspace.Format) keyspace.Format {
	plain := f
	if f.Prefixes == nil {
		return f
	}
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		namespace, name := plain.CutNamespace(e.Key)
		if namespace == "" {
			return plain.Decode(e)
		}
		related := e.Related
		e.Key, e.Related = name, make(map[string]keyspace.Entry, len(related))
		for key, beside := range related {
			e.Related[strings.TrimPrefix(key, namespace)] = beside
		}
		l, sure := plain.Decode(e)
		l.Evidence = append([]string{"it is in the namespace " + strconv.Quote(namespace)}, l.Evidence...)
		return l, sure
	}
	if f.Probe != nil {
		f.Probe = func(key, first string) keyspace.Confidence {
			_, name := plain.CutNamespace(key)
			return plain.Probe(name, first)
		}
	}
	if f.Related != nil {
		f.Related = func(e keyspace.Entry) (all []keyspace.Companion) {
			namespace, name := plain.CutNamespace(e.Key)
			e.Key = name
			for _, beside := range plain.Related(e) {
				all = append(all, keyspace.Companion{Key: namespace + beside.Key, Type: beside.Type})
			}
			return all
		}
	}
	if f.Actions != nil {
		actions := *plain.Actions
		actions.Keys = func(l keyspace.Lock) (all []string) {
			namespace, name := plain.CutNamespace(l.Key)
			l.Key = name
			for _, key := range plain.Actions.Keys(l) {
				all = append(all, namespace+key)
			}
			return all
		}
		actions.Args = func(l keyspace.Lock) []string {
			_, l.Key = plain.CutNamespace(l.Key)
			return plain.Actions.Args(l)
		}
		f.Actions = &actions
	}
	return f
}
