//! Detects header names that are too long for actix's parser, which panics on them, so that the client gets 431 instead of a reset.

/// Longest name that the `http` crate accepts.
const NAME_MAX: usize = 65_535;

/// Bytes of a header name that are kept, to recognise the headers that announce a body.
const NAME_KEPT: usize = TRANSFER_ENCODING.len();
const TRANSFER_ENCODING: &str = "transfer-encoding";
const CONTENT_LENGTH: &str = "content-length";
/// The body's length is not known: it ends before the next head that arrives after the response.
const UNTIL_NEXT_HEAD: u64 = u64::MAX;

/// Measures the header names of a connection's request heads while they arrive in pieces, pipelined ones included. Bodies are not measured.
#[derive(Default)]
pub(crate) struct HeaderNameCheck {
    /// Bytes of the current body that have not arrived.
    body_left: u64,
    /// Length of the body that the current head announces.
    announced: u64,
    /// The request line contains no header name.
    past_request_line: bool,
    /// The colon of the current line has arrived.
    past_colon: bool,
    /// Bytes of the current header name so far.
    name_length: usize,
    /// The first bytes of the current header name.
    name: [u8; NAME_KEPT],
}

impl HeaderNameCheck {
    /// Consumes the next bytes; false when a name is too long.
    pub(crate) fn accept(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            bytes = self.skip_body(bytes);
            let Some((byte, rest)) = bytes.split_first() else { return true };
            bytes = rest;
            self.read_head(*byte);
            if self.name_length > NAME_MAX {
                return false;
            }
        }
    }

    /// The next bytes are those of a head, whatever the last one announced.
    pub(crate) fn end_body(&mut self) {
        self.body_left = 0;
    }

    fn skip_body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let skipped = usize::try_from(self.body_left).map_or(bytes.len(), |left| left.min(bytes.len()));
        if self.body_left != UNTIL_NEXT_HEAD {
            self.body_left -= skipped as u64;
        }
        &bytes[skipped..]
    }

    fn read_head(&mut self, byte: u8) {
        match byte {
            b'\n' if self.past_request_line && self.name_length == 0 && !self.past_colon => {
                *self = Self { body_left: self.announced, ..Self::default() };
            }
            b'\n' => (self.past_request_line, self.past_colon, self.name_length) = (true, false, 0),
            b'\r' => {}
            b':' if !self.past_colon => {
                self.past_colon = true;
                if self.name_is(TRANSFER_ENCODING) {
                    self.announced = UNTIL_NEXT_HEAD;
                }
            }
            b'0'..=b'9' if self.past_colon && self.name_is(CONTENT_LENGTH) => {
                self.announced = self.announced.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
            }
            _ if self.past_colon || !self.past_request_line => {}
            _ => {
                if let Some(place) = self.name.get_mut(self.name_length) {
                    *place = byte;
                }
                self.name_length += 1;
            }
        }
    }

    fn name_is(&self, name: &str) -> bool {
        self.name_length == name.len() && self.name[..name.len()].eq_ignore_ascii_case(name.as_bytes())
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
            (format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{long}\n{long}"), true),
            (format!("POST / HTTP/1.1\r\nContent-Length: 131073\r\n\r\n{long}\n{long}"), true),
            (format!("GET / HTTP/1.1\r\n{long}: b\r\n"), false),
            (format!("GET / HTTP/1.1\nhost: x\n{long}"), false),
            (format!("GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\n{long}: b\r\n"), false),
            (format!("POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\na\nbGET / HTTP/1.1\r\n{long}: b\r\n"), false),
        ];
        for (text, accepted) in cases {
            assert_eq!(HeaderNameCheck::default().accept(text.as_bytes()), accepted, "{}", &text[..40]);
            let mut piecewise = HeaderNameCheck::default();
            assert_eq!(text.as_bytes().chunks(7).all(|piece| piecewise.accept(piece)), accepted, "{}", &text[..40]);
        }
    }
}
