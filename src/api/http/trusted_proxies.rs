//! The client's address behind trusted proxies: `X-Forwarded-*` headers count only when a trusted proxy sent them.
use std::net::IpAddr;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderValue;

use crate::request::headers::single_value;

/// Networks of trusted proxies, given as addresses or in CIDR notation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

/// An entry that is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an IP address nor a network such as 10.0.0.0/8")]
pub struct InvalidNetwork(pub String);

impl TrustedProxies {
    /// Parses addresses and networks such as `10.0.0.0/8`.
    ///
    /// # Errors
    /// Names the first entry that is neither an address nor a network.
    pub fn parse<T: AsRef<str>>(entries: &[T]) -> Result<Self, InvalidNetwork> {
        let parse = |entry: &T| network(entry.as_ref().trim()).ok_or_else(|| InvalidNetwork(entry.as_ref().to_owned()));
        entries.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Whether a trusted proxy reports that the client connected over https; this process serves plain http only.
    pub(crate) fn is_https(&self, request: &HttpRequest) -> bool {
        let trusted = request.peer_addr().is_some_and(|peer| self.trusts(canonical(peer.ip())));
        trusted
            && single_value(request.headers(), "x-forwarded-proto")
                .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    }

    /// The client's address: the peer's or, behind trusted proxies, the last one in `X-Forwarded-For` that is not a trusted proxy.
    pub(crate) fn client_address(&self, request: &HttpRequest) -> Option<IpAddr> {
        let peer = canonical(request.peer_addr()?.ip());
        if !self.trusts(peer) {
            return Some(peer);
        }
        let values: Vec<&HeaderValue> = request.headers().get_all("x-forwarded-for").collect();
        let mut client = peer;
        // An unreadable hop or line ends the chain: the hops before it were not written by a trusted proxy.
        for hop in values.iter().rev().map_while(|value| value.to_str().ok()).flat_map(|value| value.rsplit(',')) {
            let Some(address) = hop_address(hop.trim()) else { break };
            client = address;
            if !self.trusts(address) {
                break;
            }
        }
        Some(client)
    }
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let (network, address, width) = match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (u128::from(network.to_bits()), u128::from(address.to_bits()), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits(), address.to_bits(), 128),
            _ => return false,
        };
        let shift = width - u32::from(self.bits);
        network.checked_shr(shift).unwrap_or(0) == address.checked_shr(shift).unwrap_or(0)
    }
}

fn network(entry: &str) -> Option<Network> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) => mapped_network(address.parse().ok()?, bits.parse().ok()?),
        None => (canonical(entry.parse().ok()?), None),
    };
    let width = if IpAddr::is_ipv4(&address) { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    (bits <= width).then_some(Network { address, bits })
}

/// A network of IPv4-mapped IPv6 addresses as one of IPv4, because peers are compared in that form; every other network as it is.
fn mapped_network(address: IpAddr, bits: u8) -> (IpAddr, Option<u8>) {
    match (canonical(address), bits.checked_sub(96)) {
        (mapped, Some(bits)) if mapped != address => (mapped, Some(bits)),
        _ => (address, Some(bits)),
    }
}

fn hop_address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    hop.parse().ok().or_else(with_port).map(canonical)
}

/// Turns an IPv4-mapped IPv6 address into the IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn client(proxies: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let lines: Vec<&[u8]> = forwarded.iter().map(|line| line.as_bytes()).collect();
        client_of_lines(proxies, peer, &lines)
    }

    fn client_of_lines(proxies: &[&str], peer: &str, forwarded: &[&[u8]]) -> String {
        let mut request = TestRequest::default().peer_addr(format!("{peer}:9").parse().unwrap());
        for value in forwarded {
            request = request.append_header(("x-forwarded-for", HeaderValue::from_bytes(value).unwrap()));
        }
        let address = TrustedProxies::parse(proxies).unwrap().client_address(&request.to_http_request());
        address.unwrap().to_string()
    }

    #[test]
    fn forwarded_addresses_count_only_from_trusted_proxies_right_to_left() {
        assert_eq!(client(&[], "10.0.0.1", &["1.2.3.4"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.9.9.9"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6", "1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.1"], "10.0.0.1", &["junk"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.1"], "10.0.0.2", &["1.2.3.4"]), "10.0.0.2");
        assert_eq!(client(&["0.0.0.0/0"], "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client(&["::ffff:10.0.0.0/104"], "10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["::ffff:10.0.0.0/104"], "11.0.0.1", &["1.2.3.4"]), "11.0.0.1");
    }

    #[test]
    fn a_line_that_is_no_text_ends_the_chain() {
        let forwarded: [&[u8]; 3] = [b"6.6.6.6", b"1.2.3.4, \xff", b"10.9.9.9"];
        assert_eq!(client_of_lines(&["10.0.0.0/8"], "10.0.0.1", &forwarded), "10.9.9.9");
        assert_eq!(client_of_lines(&["10.0.0.0/8"], "10.0.0.1", &forwarded[..2]), "10.0.0.1");
    }

    #[test]
    fn an_invalid_entry_is_named() {
        assert_eq!(TrustedProxies::parse(&["10.0.0.0/33"]), Err(InvalidNetwork("10.0.0.0/33".into())));
        assert_eq!(TrustedProxies::parse(&["all"]), Err(InvalidNetwork("all".into())));
    }
}
