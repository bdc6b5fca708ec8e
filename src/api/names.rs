//! Header names beyond what HTTP libraries hold: actix's parser panics on one, and its client would be cut off without a word.

/// Longest name that the parser's library holds.
const NAME_MAX: usize = 65_535;

/// Follows a head while it arrives, and knows when a name in it runs on too long. Bodies are not looked at.
#[derive(Default)]
pub(crate) struct Names {
    over: bool,
    /// The request's own line is no name.
    past_first: bool,
    /// In the part of a line that is a name.
    named: bool,
    /// Bytes of this line so far, up to its colon.
    run: usize,
}

impl Names {
    /// False when a name is too long.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            match byte {
                _ if self.over => return true,
                b'\n' => {
                    self.over = self.past_first && self.run == 0 && !self.named;
                    (self.past_first, self.named, self.run) = (true, false, 0);
                }
                b'\r' => {}
                b':' => self.named = true,
                _ if self.named || !self.past_first => {}
                _ => self.run += 1,
            }
            if self.run > NAME_MAX {
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
    fn only_names_of_heads_are_measured() {
        let long = "a".repeat(NAME_MAX + 1);
        let cases = [
            (format!("GET /{long} HTTP/1.1\r\n"), true),
            (format!("GET / HTTP/1.1\r\nx:{long}\r\n\r\n"), true),
            (format!("GET / HTTP/1.1\r\n{}: b\r\n", "a".repeat(NAME_MAX)), true),
            (format!("POST / HTTP/1.1\r\nhost: x\r\n\r\n{long}\n{long}"), true),
            (format!("GET / HTTP/1.1\r\n{long}: b\r\n"), false),
            (format!("GET / HTTP/1.1\nhost: x\n{long}"), false),
        ];
        for (text, fine) in cases {
            assert_eq!(Names::default().hear(text.as_bytes()), fine, "{}", &text[..40]);
            let mut piecewise = Names::default();
            assert_eq!(text.as_bytes().chunks(7).all(|piece| piecewise.hear(piece)), fine, "{}", &text[..40]);
        }
    }
}
