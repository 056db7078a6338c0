//! The header of the PROXY protocol, versions 1 and 2, in which a proxy names the client of a connection
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).
//!
//! Exactly the header is read, because a TLS handshake or a request follows it. Its size is limited; its time is
//! limited by the caller. Only a proxy that the caller trusts may send one.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ppp::{HeaderResult, v1, v2};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// The largest header of version 1, with its line feed.
const MAX_LINE_BYTES: usize = 107;
/// The largest header of version 2 after its length; the addresses have 36 bytes, and load balancers add some hundreds.
const MAX_PAYLOAD_BYTES: usize = 2048;

/// Reads the header. Returns the address of the client; `None` if the proxy speaks for itself (`LOCAL`, a health check)
/// or does not know the address (`UNKNOWN`).
///
/// # Errors
/// When the connection ends, or does not begin with a header.
pub(super) async fn read(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    // Each header is longer.
    let mut header = vec![0; v2::PROTOCOL_PREFIX.len()];
    stream.read_exact(&mut header).await?;
    if header == v2::PROTOCOL_PREFIX {
        read_payload(stream, &mut header).await?;
    } else if header.starts_with(v1::PROTOCOL_PREFIX.as_bytes()) {
        read_line(stream, &mut header).await?;
    } else {
        return Err(invalid("it does not begin with a header of the PROXY protocol"));
    }
    client(&header)
}

/// The rest of a header of version 2.
async fn read_payload(stream: &mut TcpStream, header: &mut Vec<u8>) -> io::Result<()> {
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await?;
    let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if length > MAX_PAYLOAD_BYTES {
        return Err(invalid("its header of the PROXY protocol is larger than 2 KiB"));
    }
    header.extend_from_slice(&fixed);
    let begin = header.len();
    header.resize(begin + length, 0);
    stream.read_exact(&mut header[begin..]).await?;
    Ok(())
}

/// The rest of a header of version 1.
async fn read_line(stream: &mut TcpStream, header: &mut Vec<u8>) -> io::Result<()> {
    let mut seen = [0; MAX_LINE_BYTES];
    while header.last() != Some(&b'\n') {
        let room = MAX_LINE_BYTES.saturating_sub(header.len());
        if room == 0 {
            return Err(invalid("its header of the PROXY protocol has no end"));
        }
        let count = stream.peek(&mut seen[..room]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = seen[..count].iter().position(|byte| *byte == b'\n');
        let rest = &mut seen[..end.map_or(count, |end| end + 1)];
        stream.read_exact(rest).await?;
        header.extend_from_slice(rest);
    }
    Ok(())
}

fn client(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    let address = |address: IpAddr, port| Some(SocketAddr::new(address.to_canonical(), port));
    match HeaderResult::parse(header) {
        HeaderResult::V1(Ok(header)) => Ok(match header.addresses {
            v1::Addresses::Tcp4(ends) => address(ends.source_address.into(), ends.source_port),
            v1::Addresses::Tcp6(ends) => address(ends.source_address.into(), ends.source_port),
            v1::Addresses::Unknown => None,
        }),
        HeaderResult::V2(Ok(header)) => Ok(match (header.command, header.addresses) {
            (v2::Command::Proxy, v2::Addresses::IPv4(ends)) => address(ends.source_address.into(), ends.source_port),
            (v2::Command::Proxy, v2::Addresses::IPv6(ends)) => address(ends.source_address.into(), ends.source_port),
            _ => None,
        }),
        HeaderResult::V1(Err(error)) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        HeaderResult::V2(Err(error)) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// A header of version 2 with this command, family and payload.
    fn binary(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [v2::PROTOCOL_PREFIX, &[0x20 | command, family], &length, payload].concat()
    }

    /// The result of a connection that sends `bytes` in pieces of `size` and then ends; and what follows the header.
    async fn sent(bytes: &[u8], size: usize) -> (Result<Option<String>, io::ErrorKind>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = async {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.set_nodelay(true).unwrap();
            for piece in bytes.chunks(size) {
                // The server may have closed the connection.
                let _ = client.write_all(piece).await;
                tokio::task::yield_now().await;
            }
        };
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = read(&mut stream).await;
            let mut rest = Vec::new();
            if read.is_ok() {
                stream.read_to_end(&mut rest).await.unwrap();
            }
            (read, rest)
        };
        let ((), (read, rest)) = futures::join!(client, server);
        let read = read.map(|address| address.map(|address| address.to_string()));
        (read.map_err(|error| error.kind()), rest)
    }

    #[tokio::test]
    async fn a_header_names_the_client_and_what_follows_is_not_read() {
        let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0x0f, 0x96];
        let mut v6 = [0; 36];
        v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        (v6[15], v6[33]) = (1, 80);
        let with_more = [&v4[..], &[4, 0, 1, 42]].concat();
        for (header, client) in [
            (
                b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 3990\r\n".to_vec(),
                Some("192.0.2.1:4711"),
            ),
            (
                b"PROXY TCP6 2001:db8::1 fd00::1 80 3990\r\n".to_vec(),
                Some("[2001:db8::1]:80"),
            ),
            (
                b"PROXY TCP6 ::ffff:192.0.2.1 ::1 80 1\r\n".to_vec(),
                Some("192.0.2.1:80"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (binary(1, 0x11, &v4), Some("192.0.2.1:4711")),
            (binary(1, 0x11, &with_more), Some("192.0.2.1:4711")),
            (binary(1, 0x21, &v6), Some("[2001:db8::1]:80")),
            (binary(0, 0x11, &v4), None),
            (binary(0, 0, &[]), None),
            (binary(1, 0, &[]), None),
        ] {
            let bytes = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            for size in [1, 13, bytes.len()] {
                let (read, rest) = sent(&bytes, size).await;
                assert_eq!(read, Ok(client.map(str::to_owned)), "{header:?}");
                assert_eq!(rest, b"GET / HTTP/1.1\r\n");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let endless = [&b"PROXY TCP4 "[..], &[b' '; 200]].concat();
        for bytes in [
            &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711\r\n",
            b"PROXY TCP4 192.0.2.999 10.0.0.1 4711 3990\r\n",
            b"PROXY UDP4 192.0.2.1 10.0.0.1 4711 3990\r\n",
            &endless[..],
            &binary(2, 0x11, &[0; 12])[..],
            &binary(1, 0x11, &[0; 11])[..],
            &binary(1, 0x11, &[0; MAX_PAYLOAD_BYTES + 1])[..],
        ] {
            assert_eq!(
                sent(bytes, bytes.len()).await.0,
                Err(io::ErrorKind::InvalidData),
                "{bytes:?}"
            );
        }
        for bytes in [&b"PROXY TCP4 192.0.2.1"[..], b"PRO", &binary(1, 0x11, &[0; 12])[..20]] {
            assert_eq!(
                sent(bytes, bytes.len()).await.0,
                Err(io::ErrorKind::UnexpectedEof),
                "{bytes:?}"
            );
        }
    }
}
