package consumer

import (
	"fmt"
	"strings"
)

// subjectFault says why a subject, or a filter with wildcards, cannot be one; empty where it can.
func subjectFault(subject string, wildcards bool) string {
	if subject == "" {
		return "is empty"
	}
	if strings.ContainsAny(subject, " \t\r\n\f\x00") {
		return "has white space"
	}
	if strings.Contains(subject, "\x7f") { // the server stores its messages, and finds them by no filter
		return "has the character DEL (0x7f)"
	}
	rest, more := subject, true
	for more {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		switch {
		case token == "":
			return "has an empty token: no dot may begin or end it, or follow another one"
		case !strings.ContainsAny(token, "*>"):
		case !wildcards:
			return "has a wildcard"
		case len(token) > 1:
			return fmt.Sprintf("has the token %q: a wildcard must be a whole token", token)
		case token == ">" && more:
			return "has '>' before its end"
		}
	}
	return ""
}

// streamFault says why a name cannot be a stream's; empty where it can.
func streamFault(name string) string {
	switch {
	case name == "":
		return "is empty"
	case strings.ContainsAny(name, ".*>/\\ \t\r\n\f\x00"):
		return "may not have dots, wildcards, slashes and white space"
	}
	return ""
}

// bucketFault says why a bucket cannot have this name; empty where it can.
func bucketFault(name string) string {
	const most = 255 - len("KV_")
	if name == "" || len(name) > most {
		return fmt.Sprintf("must have 1 to %d characters", most)
	}
	return letters(name)
}

// groupFault says why a group cannot have this name; empty where it can. It is part of the names of streams and of subjects.
func groupFault(name string) string {
	const most = 32
	if name == "" || len(name) > most {
		return fmt.Sprintf("must have 1 to %d characters", most)
	}
	return letters(name)
}

// letters says why a name that may have no others is none; empty where it is.
func letters(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) {
		return "may have letters, digits, '-' and '_' only"
	}
	return ""
}
