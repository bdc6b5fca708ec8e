//! Detects header names that are too long for actix's parser, which panics on them, so that the client gets 431 instead of a reset.

/// Longest name that the `http` crate accepts.
const NAME_MAX: usize = 65_535;

/// Measures the header names of a request head while it arrives in pieces. Bodies are not measured.
#[derive(Default)]
pub(crate) struct HeaderNameCheck {
    head_complete: bool,
    /// The request line contains no header name.
    past_request_line: bool,
    /// The colon of the current line has arrived.
    past_colon: bool,
    /// Bytes of the current header name so far.
    name_length: usize,
}

impl HeaderNameCheck {
    /// Consumes the next bytes; false when a name is too long.
    pub(crate) fn accept(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            match byte {
                _ if self.head_complete => return true,
                b'\n' => {
                    self.head_complete = self.past_request_line && self.name_length == 0 && !self.past_colon;
                    (self.past_request_line, self.past_colon, self.name_length) = (true, false, 0);
                }
                b'\r' => {}
                b':' => self.past_colon = true,
                _ if self.past_colon || !self.past_request_line => {}
                _ => self.name_length += 1,
            }
            if self.name_length > NAME_MAX {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_header_names_are_measured() {
        let long = "a".repeat(NAME_MAX + 1);
        let cases = [
            (format!("GET /{long} HTTP/1.1\r\n"), true),
            (format!("GET / HTTP/1.1\r\nx:{long}\r\n\r\n"), true),
            (format!("GET / HTTP/1.1\r\n{}: b\r\n", "a".repeat(NAME_MAX)), true),
            (format!("POST / HTTP/1.1\r\nhost: x\r\n\r\n{long}\n{long}"), true),
            (format!("GET / HTTP/1.1\r\n{long}: b\r\n"), false),
            (format!("GET / HTTP/1.1\nhost: x\n{long}"), false),
        ];
        for (text, accepted) in cases {
            assert_eq!(HeaderNameCheck::default().accept(text.as_bytes()), accepted, "{}", &text[..40]);
            let mut piecewise = HeaderNameCheck::default();
            assert_eq!(text.as_bytes().chunks(7).all(|piece| piecewise.accept(piece)), accepted, "{}", &text[..40]);
        }
    }
}
