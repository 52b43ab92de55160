package admin

import (
	"encoding/json"
	"net/http"

	"github.com/hanzoai/stream/logging"
)

// Problem is an error document (RFC 9457). Code is stable within a major
// version; Title, Detail and Hint are for people.
type Problem struct {
	Type       string `json:"type"` // about:blank: the title is the status' own
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail,omitempty"`
	Code       string `json:"code"`
	KafkaError string `json:"kafka_error,omitempty"`
	Hint       string `json:"hint,omitempty"`
}

// Codes of problems.
const (
	codeNotFound     = "not_found"
	codeMethod       = "method_not_allowed"
	codeForbidden    = "local_only"
	codeTooLarge     = "body_too_large"
	codeBadRequest   = "bad_request"
	codeStoreFailure = "store_unavailable"
	codeInternal     = "internal_error"
)

func writeProblem(w http.ResponseWriter, status int, code, detail, hint string) {
	p := Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: logging.RedactURLs(detail), Code: code, Hint: hint,
	}
	body, err := json.Marshal(p)
	if err != nil { // strings only: cannot happen
		body = []byte(`{"code":"` + codeInternal + `"}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
