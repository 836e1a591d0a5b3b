"""Who is who: keys and signatures of nodes, certificates of their connections, invitations of guests."""
