//! AddressPolicy: the addresses that a webhook may reach. It is applied to the resolved addresses, which are those that are connected, so that
//! no name resolves to the service's own network (server-side request forgery, OWASP).
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The addresses that may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Addresses of the public internet.
    PublicOnly,
    /// Also private, local and reserved addresses.
    Any,
}

impl AddressPolicy {
    fn permits(self, address: IpAddr) -> bool {
        self == Self::Any || is_public(address)
    }

    /// Checks a URL whose host is an address; a name is checked when it is resolved.
    ///
    /// # Errors
    /// The address is not permitted, as the end of a sentence that begins with the name of the URL.
    pub(crate) fn check_literal(self, url: &Uri) -> Result<(), String> {
        let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let local = host.eq_ignore_ascii_case("localhost");
        let permitted = match host.parse::<IpAddr>() {
            Ok(address) => self.permits(address),
            Err(_) => !local || self == Self::Any,
        };
        if permitted {
            Ok(())
        } else {
            Err(format!("must not lead to the private address {host}; webhooks.private_addresses permits it"))
        }
    }
}

/// Resolves names as the system does and keeps the permitted addresses.
#[derive(Debug)]
pub(crate) struct PermittedResolver {
    system: DefaultResolver,
    policy: AddressPolicy,
}

impl PermittedResolver {
    pub(crate) fn new(policy: AddressPolicy) -> Self {
        Self { system: DefaultResolver::default(), policy }
    }
}

impl Resolver for PermittedResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.system.resolve(uri, config, timeout)?;
        let mut permitted = self.empty();
        for address in found.iter().filter(|address: &&SocketAddr| self.policy.permits(address.ip())) {
            permitted.push(*address);
        }
        if permitted.is_empty() {
            let reason = "its address is private, and webhooks.private_addresses does not permit it";
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, reason).into());
        }
        Ok(permitted)
    }
}

/// Whether an address belongs to the public internet (IANA's registries of special-purpose addresses).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        // Shared address space, IETF protocol assignments, benchmarks.
        || (a == 100 && (64..128).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a == 198 && (18..20).contains(&b));
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // IPv4-mapped and IPv4-compatible addresses, NAT64, 6to4: the embedded address decides. NAT64's local prefix 64:ff9b:1::/48 is not
        // public: the position of the embedded address depends on the length of the network's own prefix.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments, among them Teredo and ORCHID (2001::/23); documentation (2001:db8::/32, 3fff::/20).
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Global unicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        let public = [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "2002:101:101::1",
            "2001:200::1",
            "3fff:1000::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ];
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2001:1ff:ffff::1",
            "3fff::1",
            "3fff:fff::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::101:101",
            "64:ff9b:1:a9fe:a9:fe00:808:808",
            "2002:a00:1::1",
            "2002:7f00:1::1",
        ];

        for address in public {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in private {
            assert!(!is_public(address.parse().unwrap()), "{address}");
            assert!(AddressPolicy::Any.permits(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_url_with_a_private_address_or_localhost_is_refused() {
        let check = |policy: AddressPolicy, url: &str| policy.check_literal(&url.parse().unwrap());

        for url in
            ["https://127.0.0.1/", "https://[::1]:8443/", "https://LOCALHOST/x", "https://169.254.169.254/latest"]
        {
            let refused = check(AddressPolicy::PublicOnly, url).unwrap_err();
            assert!(refused.contains("webhooks.private_addresses"), "{refused}");
            assert_eq!(check(AddressPolicy::Any, url), Ok(()), "{url}");
        }
        assert_eq!(check(AddressPolicy::PublicOnly, "https://example.org/"), Ok(()));
    }
}
