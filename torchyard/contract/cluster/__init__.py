"""Workers, pools and devices, and who had them."""
