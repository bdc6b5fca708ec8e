//! Whose word on a client's address is believed: `X-Forwarded-For` counts only when it comes from one of these.
use std::net::IpAddr;

use actix_web::HttpRequest;

use crate::context::only;

/// Networks of trusted proxies, as addresses or in CIDR form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<Network>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

/// A text that is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither an IP address nor a network such as 10.0.0.0/8")]
pub struct NoNetwork(pub String);

impl Proxies {
    /// Reads each entry.
    ///
    /// # Errors
    /// Names the first entry that is no address and no network.
    pub fn parse<T: AsRef<str>>(entries: &[T]) -> Result<Self, NoNetwork> {
        let read = |entry: &T| network(entry.as_ref().trim()).ok_or_else(|| NoNetwork(entry.as_ref().to_owned()));
        entries.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.holds(address))
    }

    /// Whether the client came over https, as far as a proxy of ours tells: we speak plain http ourselves.
    pub(crate) fn is_https(&self, request: &HttpRequest) -> bool {
        let trusted = request.peer_addr().is_some_and(|peer| self.trusts(plain(peer.ip())));
        trusted
            && only(request.headers(), "x-forwarded-proto").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
    }

    /// The client's address: the peer's, or, behind trusted proxies, the last one in `X-Forwarded-For` that is not a proxy of ours.
    pub(crate) fn client(&self, request: &HttpRequest) -> Option<IpAddr> {
        let peer = plain(request.peer_addr()?.ip());
        if !self.trusts(peer) {
            return Some(peer);
        }
        let lines: Vec<&str> =
            request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok()).collect();
        let mut client = peer;
        for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
            // A hop that cannot be read ends the chain: what stands before it was not written by one we trust.
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
    fn holds(&self, address: IpAddr) -> bool {
        let (ours, theirs, width) = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => (u128::from(ours.to_bits()), u128::from(theirs.to_bits()), 32),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
            _ => return false,
        };
        let shift = width - u32::from(self.bits);
        ours.checked_shr(shift).unwrap_or(0) == theirs.checked_shr(shift).unwrap_or(0)
    }
}

fn network(entry: &str) -> Option<Network> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) => (address.parse().ok()?, Some(bits.parse::<u8>().ok()?)),
        None => (plain(entry.parse().ok()?), None),
    };
    let width = if IpAddr::is_ipv4(&address) { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    (bits <= width).then_some(Network { address, bits })
}

fn hop_address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    hop.parse().ok().or_else(with_port).map(plain)
}

/// An IPv4 address that came through an IPv6 socket is the same address.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn client(proxies: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let mut request = TestRequest::default().peer_addr(format!("{peer}:9").parse().unwrap());
        for line in forwarded {
            request = request.append_header(("x-forwarded-for", *line));
        }
        let address = Proxies::parse(proxies).unwrap().client(&request.to_http_request());
        address.unwrap().to_string()
    }

    #[test]
    fn the_header_counts_only_from_trusted_proxies_and_from_the_right() {
        assert_eq!(client(&[], "10.0.0.1", &["1.2.3.4"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.9.9.9"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["6.6.6.6", "1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&["10.0.0.1"], "10.0.0.1", &["junk"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.1"], "10.0.0.2", &["1.2.3.4"]), "10.0.0.2");
        assert_eq!(client(&["0.0.0.0/0"], "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn an_entry_that_is_no_network_is_named() {
        assert_eq!(Proxies::parse(&["10.0.0.0/33"]), Err(NoNetwork("10.0.0.0/33".into())));
        assert_eq!(Proxies::parse(&["all"]), Err(NoNetwork("all".into())));
    }
}
