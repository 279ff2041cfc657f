"""Every operation of a client, written once: Client and AsyncClient differ in their transport alone."""
