package formats_test

// acceptance is five locks as somebody writes them by hand.
var acceptance = [][]string{
	{"SET", "lock:a", "5d2e9a14-7c3b-4f6a-9e81-0b2c4d6e8f10", "PX", "60000"},
	{"HSET", "lock:b", "holder-7", "2"},
	{"PEXPIRE", "lock:b", "45000"},
	{"HSET", "orders:42", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "3"},
	{"PEXPIRE", "orders:42", "30000"},
	{"HSET", "catalog", "mode", "read", client + ":1", "1", client + ":2", "2", other + ":1", "1"},
	{"PEXPIRE", "catalog", "30000"},
	{"SET", "lock:nightly", "0c9d1e7a-4f2b-4c8d-8a6e-1f3b5d7f9a20"},
}

const (
	client = "3ac1b6a2-93a5-4f0f-8f2e-0d6a4f1c2b33"
	other  = "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77"
)
