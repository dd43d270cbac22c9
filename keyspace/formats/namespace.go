package formats

import (
	"strconv"
	"strings"

	"locktop/keyspace"
)

// namePrefix is the length of a beginning of names that is hardly a part of other names.
const namePrefix = len("lock:")

// inNamespaces returns a format that also finds the locks in the namespace of an application,
// which redis-namespace, keyPrefix and the like put before all names. The other keys of such a
// lock are in the same namespace, and the functions of f see their names without it.
func inNamespaces(f keyspace.Format) keyspace.Format {
	if f.Prefixes == nil || f.LockKey != nil {
		return f
	}
	plain := f
	cut := func(key string) (namespace, name string) {
		namespace, name, _ = plain.CutNamespace(key)
		return namespace, name
	}
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		namespace, name := cut(e.Key)
		if namespace == "" {
			return plain.Decode(e)
		}
		related := make(map[string]keyspace.Entry, len(e.Related))
		for key, beside := range e.Related {
			related[strings.TrimPrefix(key, namespace)] = beside
		}
		e.Key, e.Related = name, related
		l, sure := plain.Decode(e)
		l.Evidence = append([]string{"it is in the namespace " + strconv.Quote(namespace)}, l.Evidence...)
		for _, prefix := range plain.Prefixes {
			if len(prefix) < namePrefix && strings.HasPrefix(name, prefix) {
				sure = oneLess(sure)
				break
			}
		}
		return l, sure
	}
	if plain.Probe != nil {
		f.Probe = func(key, first string) keyspace.Confidence {
			_, name := cut(key)
			return plain.Probe(name, first)
		}
	}
	if plain.Related != nil {
		f.Related = func(e keyspace.Entry) []keyspace.Companion {
			var namespace string
			namespace, e.Key = cut(e.Key)
			all := plain.Related(e)
			for i := range all {
				all[i].Key = namespace + all[i].Key
			}
			return all
		}
	}
	if plain.Actions != nil {
		actions := *plain.Actions
		actions.Keys = func(l keyspace.Lock) []string {
			var namespace string
			namespace, l.Key = cut(l.Key)
			all := plain.Actions.Keys(l)
			for i := range all {
				all[i] = namespace + all[i]
			}
			return all
		}
		actions.Args = func(l keyspace.Lock) []string {
			_, l.Key = cut(l.Key)
			return plain.Actions.Args(l)
		}
		f.Actions = &actions
	}
	return f
}
