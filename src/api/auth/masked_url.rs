//! URLs without their credentials.

/// The URL of a key set as it may be shown: user info and query, which may contain credentials, are masked.
pub fn masked_url(url: &str) -> String {
    let (address, has_query) = url.split_once('?').map_or((url, false), |(address, _)| (address, true));
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or_else(|| authority.to_owned(), |(_, host)| format!("***@{host}"));
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    format!("{scheme}{host}{path}{}", if has_query { "?***" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_url_are_masked() {
        let cases = [
            ("https://keys.example/jwks", "https://keys.example/jwks"),
            ("https://user:hidden@keys.example:8443/a/jwks?key=hidden", "https://***@keys.example:8443/a/jwks?***"),
            ("https://hidden@h@keys.example", "https://***@keys.example"),
            ("u:hidden@keys.example/jwks", "***@keys.example/jwks"),
            ("", ""),
        ];
        for (url, masked) in cases {
            assert_eq!(masked_url(url), masked);
        }
    }
}
