//! Finds the end of each request on a connection, and hides input from actix's parser: header names that are too long, on which it panics,
//! and requests to change to another protocol.
use crate::http::request_scanner::chunked_body::{ChunkedBody, count_arrived};

pub(crate) mod chunked_body;

/// Longest name that the `http` crate accepts.
const NAME_MAX: usize = 65_535;

/// Bytes of a header name that are kept, to recognise the headers that have a meaning here.
const NAME_KEPT: usize = TRANSFER_ENCODING.len();
const TRANSFER_ENCODING: &str = "transfer-encoding";
const CONTENT_LENGTH: &str = "content-length";
/// No protocol is served that a connection could change to, and the header may be ignored (RFC 9110, 7.8). With `websocket` the parser would
/// ignore the length of the request's body, and send a streamed response without the chunks that its head announces.
const UPGRADE: &str = "upgrade";
/// With the option `upgrade` the parser would close the connection after the response, and announce an upgrade instead of the close.
const CONNECTION: &str = "connection";
/// Replaces each alphabetic character of a protocol's name, and the first one of the option `upgrade`.
const NO_PROTOCOL: u8 = b'-';

/// A header name is longer than the parser accepts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeaderNameTooLong;

/// Follows one request while it arrives in pieces. Only a request that the parser accepts has a meaningful end: it refuses the head of any
/// other one, or a chunk, before that end.
#[derive(Default)]
pub(crate) struct RequestScanner {
    part: RequestPart,
    head: HeadScanner,
}

#[derive(Default)]
enum RequestPart {
    #[default]
    Head,
    /// This many bytes of the body have not arrived.
    SizedBody(u64),
    ChunkedBody(ChunkedBody),
    /// The transfer coding is not valid: the parser refuses what follows.
    BrokenBody,
    Complete,
}

impl RequestScanner {
    /// Resets the scanner: the next bytes are those of a new request.
    pub(crate) fn start_request(&mut self) {
        *self = Self::default();
    }

    /// Consumes the next bytes of the request, and returns how many belong to it.
    pub(crate) fn accept(&mut self, bytes: &mut [u8]) -> Result<usize, HeaderNameTooLong> {
        let mut accepted = 0;
        while let rest @ [_, ..] = &mut bytes[accepted..] {
            accepted += match &mut self.part {
                RequestPart::Head => {
                    if let Some(body) = self.head.accept(&mut rest[0])? {
                        self.part = body;
                    }
                    1
                }
                RequestPart::SizedBody(left) => {
                    let arrived = count_arrived(left, rest);
                    if *left == 0 {
                        self.part = RequestPart::Complete;
                    }
                    arrived
                }
                RequestPart::ChunkedBody(body) => {
                    let arrived = body.accept(rest);
                    if body.has_ended() {
                        self.part = RequestPart::Complete;
                    } else if body.is_broken() {
                        self.part = RequestPart::BrokenBody;
                    }
                    arrived
                }
                RequestPart::BrokenBody => rest.len(),
                RequestPart::Complete => break,
            };
        }
        Ok(accepted)
    }
}

#[derive(Default)]
struct HeadScanner {
    /// The request line contains no header name. Empty lines before it are not part of it.
    past_request_line: bool,
    /// The current line contains more than its end.
    line_started: bool,
    /// The colon of the current line has arrived.
    past_colon: bool,
    /// Bytes of the current header name so far.
    name_length: usize,
    /// The first bytes of the current header name.
    name: [u8; NAME_KEPT],
    /// `Content-Length`; digits beyond the range of the type saturate, and the parser refuses them.
    announced: u64,
    is_chunked: bool,
}

impl HeadScanner {
    /// Consumes one byte; at the end of the head it returns what follows.
    fn accept(&mut self, byte: &mut u8) -> Result<Option<RequestPart>, HeaderNameTooLong> {
        match *byte {
            b'\n' if self.line_started => {
                (self.past_request_line, self.line_started) = (true, false);
                (self.past_colon, self.name_length) = (false, 0);
            }
            b'\n' if self.past_request_line => return Ok(Some(self.body())),
            b'\n' | b'\r' => {}
            _ => {
                self.line_started = true;
                if self.past_request_line {
                    self.read_header(byte);
                }
            }
        }
        if self.name_length > NAME_MAX { Err(HeaderNameTooLong) } else { Ok(None) }
    }

    fn read_header(&mut self, byte: &mut u8) {
        match *byte {
            b':' if !self.past_colon => {
                self.past_colon = true;
                self.is_chunked |= self.name_is(TRANSFER_ENCODING);
            }
            b'0'..=b'9' if self.past_colon && self.name_is(CONTENT_LENGTH) => {
                self.announced = self.announced.saturating_mul(10).saturating_add(u64::from(*byte - b'0'));
            }
            b'a'..=b'z' | b'A'..=b'Z' if self.past_colon && self.name_is(UPGRADE) => *byte = NO_PROTOCOL,
            // Neither `close` nor `keep-alive` has this character.
            b'u' | b'U' if self.past_colon && self.name_is(CONNECTION) => *byte = NO_PROTOCOL,
            _ if self.past_colon => {}
            _ => {
                if let Some(kept) = self.name.get_mut(self.name_length) {
                    *kept = *byte;
                }
                self.name_length += 1;
            }
        }
    }

    fn name_is(&self, name: &str) -> bool {
        self.name_length == name.len() && self.name[..name.len()].eq_ignore_ascii_case(name.as_bytes())
    }

    fn body(&self) -> RequestPart {
        match self.announced {
            // The parser accepts no other transfer coding, and none together with a length.
            _ if self.is_chunked => RequestPart::ChunkedBody(ChunkedBody::default()),
            0 => RequestPart::Complete,
            length => RequestPart::SizedBody(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that belong to the first request, when they arrive in pieces of this size.
    fn scan(text: &str, piece: usize) -> Result<String, HeaderNameTooLong> {
        let (mut scanner, mut accepted) = (RequestScanner::default(), Vec::new());
        for piece in text.as_bytes().chunks(piece) {
            let mut piece = piece.to_vec();
            let belongs = scanner.accept(&mut piece)?;
            accepted.extend_from_slice(&piece[..belongs]);
        }
        Ok(String::from_utf8(accepted).expect("ASCII"))
    }

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
        ];
        for (text, accepted) in cases {
            for piece in [text.len(), 7] {
                assert_eq!(
                    scan(&text, piece),
                    if accepted { Ok(text.clone()) } else { Err(HeaderNameTooLong) },
                    "{}",
                    &text[..40]
                );
            }
        }
    }

    #[test]
    fn bytes_behind_a_request_do_not_belong_to_it() {
        const NEXT: &str = "GET /next HTTP/1.1\r\n\r\n";
        let requests = [
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET http://x:1/ HTTP/1.1\nhost: x\n\n",
            "GET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\nX-Content-Length: 7\r\nContent-Length:  5 \r\n\r\na\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na\r\n0\r\n0a;b=\"c\"\r\n0123456789\r\n0\t \r\nd: e\r\nf\r\n\r\n",
        ];
        for request in requests {
            let text = format!("{request}{NEXT}");
            for piece in 1..=text.len() {
                assert_eq!(scan(&text, piece), Ok(request.to_owned()), "{request:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn the_parser_receives_everything_behind_a_broken_body() {
        for body in ["zz\r\n", "\r\n", "1;\r\r", "1\r\nab", "0\r\n\rx", "11111111111111111\r\n"] {
            let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}GET / HTTP/1.1\r\n\r\n");
            assert_eq!(scan(&text, 3), Ok(text.clone()), "{body:?}");
        }
    }

    #[test]
    fn the_parser_sees_no_protocol_to_upgrade_to() {
        let request = |protocols: &str, option: &str| {
            format!(
                "GET /upgrade HTTP/1.1\r\nx-upgrade: websocket\r\nUpgrade:{protocols}\r\nconnection: {option}\r\n\r\n"
            )
        };
        for piece in [1, 7, 1_000] {
            assert_eq!(scan(&request(" websocket", "upgrade"), piece), Ok(request(" ---------", "-pgrade")));
            assert_eq!(
                scan(&request("WebSocket , h2c/2", "close, Upgrade"), piece),
                Ok(request("--------- , -2-/2", "close, -pgrade"))
            );
        }
    }
}
