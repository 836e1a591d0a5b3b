"""Keys, certificates and invitations."""

from __future__ import annotations

from typing import Final

from motet.cli.catalogue.entry import Entry

ENTRIES: Final = {
    "E-KEY-01": Entry(
        "key file cannot be used",
        "The file of a private key is missing, unreadable, damaged, of another kind, or open to others than its owner.",
        "motet signs with Ed25519 keys, as PKCS#8 in PEM, unencrypted. A copy may have been cut off or "
        "given wider rights.",
        "Say chmod 600 if the message says so, or restore the file from a backup. Deleted, it is made anew:"
        " a new key is a new node, which a pinned key or an invitation does not cover.",
    ),
    "E-KEY-02": Entry(
        "cryptography is not installed",
        "Keys, signatures and certificates need the package cryptography.",
        "It is an extra: runs on one machine do without.",
        "pip install 'motet[swarm]'.",
    ),
    "E-KEY-03": Entry(
        "swarm.authority is another key than this machine's",
        "The run file names a key of the swarm that is not the one in this machine's authority.pem.",
        "The run file is another owner's, or MOTET_HOME is another folder than before.",
        "Put the line that `motet keys ca` printed under [swarm], or bring the right authority.pem back.",
    ),
    "E-CERT-01": Entry(
        "no certificate authority here",
        "A certificate was to be issued, and this machine has no authority for it.",
        "The authority lies on one machine only, under $MOTET_HOME/keys/<run>/ca.",
        "Issue on that machine, or make an authority with `motet keys ca FILE`.",
    ),
    "E-CERT-02": Entry(
        "certificate or its key cannot be used",
        "A file is missing, unreadable, no certificate in PEM, does not belong to the one beside it, or "
        "would be overwritten.",
        "Copied in part, mixed up with another authority's, or made a second time.",
        "Issue it anew with `motet keys issue`; restore an authority from its backup, or move its folder "
        "aside for a new one.",
    ),
    "E-CERT-03": Entry(
        "certificate authority has ended",
        "The authority's own certificate is past its last day, so it issues nothing more.",
        "It lasts ten years, or the clock of this machine is wrong.",
        "Check the clock. Else move the folder ca aside, run `motet keys ca`, and issue every certificate anew.",
    ),
    "E-CERT-04": Entry(
        "certificates that cannot be used",
        "`motet keys verify` found at least one certificate with which connections fail.",
        "Mostly it has ended, is another authority's or another node's, or its key is open to others.",
        "Each line marked bad says what to do.",
    ),
    "E-INVITE-01": Entry(
        "invitation is damaged",
        "The text is no invitation, or part of it is missing or changed.",
        "Long lines are easily cut when they are copied; line breaks and blanks do no harm.",
        "Copy the whole line that `motet invite` printed.",
    ),
    "E-INVITE-02": Entry(
        "invitation has expired",
        "Its last moment has passed by this machine's clock.",
        "Invitations are good for 7 days unless the inviter says otherwise.",
        "Check this machine's clock, or ask for another one.",
    ),
    "E-INVITE-03": Entry(
        "invitation of another protocol version",
        "It was made by a motet that speaks another version of the protocol.",
        "Versions of motet that differ in it cannot take part in one swarm.",
        "Install the version of whoever invited you.",
    ),
    "E-INVITE-04": Entry(
        "invitation is not genuine",
        "Its signatures do not hold, or its parts do not belong together.",
        "It was changed after it was signed, or somebody forged it.",
        "Do not use it. Ask for another one over another way, and compare the key of the swarm.",
    ),
    "E-INVITE-05": Entry(
        "file of invitations is damaged",
        "invites.json or revocations in the folder of the keys cannot be read.",
        "It was edited, cut off, or written by another version.",
        "Restore it from a backup. Deleted, what it says of earlier invitations is lost; each file keeps "
        "the revoked ones for the other.",
    ),
    "E-INVITE-06": Entry(
        "no key of the swarm to invite with",
        "swarm.authority is not set, or its key is not on this machine.",
        "Only the machine with authority.pem can invite; nothing is made unasked.",
        "Run `motet keys ca FILE` and put its line under [swarm], or invite on the machine that has the key.",
    ),
    "E-INVITE-07": Entry(
        "no address that a guest can reach",
        "There is no address for the guest, or one that means the guest's own machine.",
        "0.0.0.0, localhost and 127.0.0.1 mean something else on every machine.",
        "Say --address tcp/HOST:PORT with the address of a relay, or that at which others reach this machine.",
    ),
    "E-INVITE-08": Entry(
        "name cannot be invited or revoked",
        "The name has an open invitation, is a node of this machine, was never invited, or the list of "
        "revoked ones is full.",
        "A name belongs to one key at a time.",
        "Take the earlier invitation back with --revoke, or choose another name; --list shows all. For a node that "
        "runs elsewhere, delete the key that was made for it on this machine, which the message names.",
    ),
}
