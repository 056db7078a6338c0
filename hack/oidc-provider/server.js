// The certified provider with its own pages for development: any login and password sign in. The arguments are its port
// and the address that it sends people back to.
import { Provider } from 'oidc-provider';

const [port, redirect] = process.argv.slice(2);
const account = (id) => ({
  accountId: id,
  claims: () => ({ sub: id, name: `The person ${id}`, email: `${id}@example.net`, email_verified: true, groups: ['operations'] }),
});

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: 'tidewaiter', client_secret: 'not-a-real-secret', redirect_uris: [redirect] }],
  claims: { openid: ['sub'], profile: ['name'], email: ['email', 'email_verified'], groups: ['groups'] },
  // The claims are in the ID token, and not at another endpoint alone.
  conformIdTokenClaims: false,
  cookies: { keys: ['not-a-real-key'] },
  features: { devInteractions: { enabled: true } },
  findAccount: (_, id) => account(id),
  pkce: { required: () => true },
});
provider.listen(Number(port), '127.0.0.1');
