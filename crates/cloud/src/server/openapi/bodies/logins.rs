//! The bodies of logins: passwords, and the logins that a person grants to programs.

use utoipa::openapi::{OneOfBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::models::values::DisplayName;
use crate::models::{Login, Secret};

/// A password: 12 to 256 characters without control characters.
#[derive(ToSchema)]
#[schema(
    format = "password",
    min_length = 12,
    max_length = 256,
    pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$",
    examples("not-a-real-password")
)]
pub(super) struct Password(String);

/// The current and the new password.
#[derive(ToSchema)]
pub(in crate::server) struct PasswordChange {
    #[schema(write_only)]
    old_password: Secret,
    #[schema(write_only)]
    new_password: Password,
    /// True to revoke the tokens of programs and to remove links with providers too; by default, only the other logins
    /// end.
    #[schema(nullable = false)]
    end_tokens: Option<bool>,
}

/// A new password.
#[derive(ToSchema)]
pub(in crate::server) struct NewPassword {
    #[schema(write_only)]
    password: Password,
    /// True to revoke the tokens of programs and to remove links with providers too; by default, only the logins end.
    #[schema(nullable = false)]
    end_tokens: Option<bool>,
}

/// The credentials of a login: e-mail and password for `password`, an API key for `api_key`, a code that a person
/// granted for `browser` and `device`.
pub(in crate::server) struct LoginRequest;

impl ToSchema for LoginRequest {}

impl PartialSchema for LoginRequest {
    fn schema() -> RefOr<Schema> {
        let one = OneOfBuilder::new().item(Login::schema()).item(ApiKeyLogin::schema());
        let one = one.item(BrowserLogin::schema()).item(DeviceCodeLogin::schema());
        Schema::OneOf(one.build()).into()
    }
}

/// The response to a login.
#[derive(ToSchema)]
pub(in crate::server) struct Token {
    /// The value for `Authorization: JWT …`.
    token: Secret,
}

/// The API key of a cluster.
#[derive(ToSchema)]
struct ApiKeyLogin {
    #[schema(inline, write_only)]
    api_key: Secret,
}

/// The code that came to the program with the browser.
#[derive(ToSchema)]
struct BrowserLogin {
    #[schema(inline, write_only)]
    code: Secret,
    /// The text whose SHA-256 is the `code_challenge`.
    #[schema(inline, write_only)]
    code_verifier: Secret,
    redirect_uri: String,
}

/// The code of a program that waits. Until a person has decided, the response is 400, whose message begins with
/// `authorization_pending:`, `slow_down:`, `access_denied:` or `expired_token:` (RFC 8628, 3.5).
#[derive(ToSchema)]
struct DeviceCodeLogin {
    #[schema(inline, write_only)]
    device_code: Secret,
}

/// A program that is to be logged in.
#[derive(ToSchema)]
pub(in crate::server) struct Program {
    /// Its name, which the person sees: at most 64 characters.
    name: DisplayName,
}

/// The codes of a login that waits for a person.
#[derive(ToSchema)]
pub(in crate::server) struct DeviceLogin {
    /// The code with which the program asks for its token.
    device_code: Secret,
    /// The code that the person types.
    #[schema(examples("WDJB-MJHT"))]
    user_code: String,
    /// The page for the code.
    verification_uri: String,
    /// The page, with the code filled in.
    verification_uri_complete: String,
    /// Seconds.
    expires_in: u32,
    /// The minimum number of seconds between two requests for the token.
    interval: u32,
}

/// A login that you grant to a program.
#[derive(ToSchema)]
pub(in crate::server) struct LoginGrantRequest {
    /// The name of the program: at most 64 characters.
    name: DisplayName,
    /// The address of the program: `http://127.0.0.1:PORT/` or `http://[::1]:PORT/`.
    #[schema(examples("http://127.0.0.1:49152/"))]
    redirect_uri: String,
    /// The SHA-256 of a verifier that only the program has (RFC 7636, S256).
    #[schema(
        min_length = 43,
        max_length = 43,
        examples("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
    )]
    code_challenge: String,
}

/// The code for the program, which is valid once and for a minute.
#[derive(ToSchema)]
pub(in crate::server) struct GrantedLogin {
    code: Secret,
}

/// Your decision about a program that shows a code.
#[derive(ToSchema)]
pub(in crate::server) struct DeviceDecision {
    #[schema(examples("WDJB-MJHT"))]
    user_code: String,
    /// Without it, nothing is decided.
    #[schema(nullable = false)]
    approved: Option<bool>,
}

/// A program that waits for your decision.
#[derive(ToSchema)]
pub(in crate::server) struct WaitingProgram {
    /// Its name, as it says.
    name: DisplayName,
    /// The address from which it asked.
    address: String,
}
