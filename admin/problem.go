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

// Refusal is an error of a Backend about what was asked for, not about the store.
type Refusal struct {
	Status     int // HTTP's
	Code       string
	KafkaError string // its name, or ""
	Detail     string
	Hint       string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Detail }

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
	writeRefusal(w, &Refusal{Status: status, Code: code, Detail: detail, Hint: hint})
}

func writeRefusal(w http.ResponseWriter, r *Refusal) {
	p := Problem{
		Type: "about:blank", Title: http.StatusText(r.Status), Status: r.Status,
		Detail: logging.RedactURLs(r.Detail), Code: r.Code, KafkaError: r.KafkaError, Hint: r.Hint,
	}
	body, err := json.Marshal(p)
	if err != nil { // strings only: cannot happen
		body = []byte(`{"code":"` + codeInternal + `"}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
