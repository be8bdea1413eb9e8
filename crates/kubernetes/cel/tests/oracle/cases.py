"""Writes the cases that main.go answers: rules over one schema, and what they are run on."""
import json, sys

SCHEMA = {"type": "object", "properties": {
    "s": {"type": "string", "maxLength": 20}, "u": {"type": "string"}, "i": {"type": "integer"}, "d": {"type": "number"},
    "b": {"type": "boolean"}, "l": {"type": "array", "maxItems": 10, "items": {"type": "integer"}},
    "ls": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 30}},
    "big": {"type": "array", "items": {"type": "string"}},
    "m": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 10}},
    "o": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}, "y": {"type": "string", "maxLength": 5}, "in": {"type": "string"}, "a-b": {"type": "integer"}}},
    "lm": {"type": "array", "maxItems": 8, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 6}, "v": {"type": "integer"}}}},
    "set": {"type": "array", "maxItems": 8, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 6}},
    "ios": {"x-kubernetes-int-or-string": True}, "t": {"type": "string", "format": "date-time"},
    "dur": {"type": "string", "format": "duration"}, "by": {"type": "string", "format": "byte"},
    "en": {"type": "string", "enum": ["aa", "bbbb"]}, "n": {"type": "string", "nullable": True},
    "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "miss": {"type": "object", "properties": {"q": {"type": "string", "maxLength": 3}}}}}
SELF = {"s": "hello", "u": "héllo wörld", "i": 5, "d": 1.5, "b": True, "l": [3, 1, 2], "ls": ["a", "bb", "ccc"],
        "big": ["x", "y"], "m": {"a": "1", "b": "2"}, "o": {"x": 7, "y": "yy", "in": "kw", "a-b": 3},
        "lm": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "set": ["p", "q"], "ios": 80, "t": "2024-02-29T10:20:30.5Z",
        "dur": "1h30m", "by": "aGk=", "en": "aa", "n": None, "p": {"z": 1}}
OLD = {"s": "hello", "i": 4, "l": [1, 2, 3], "lm": [{"k": "b", "v": 2}, {"k": "a", "v": 1}], "set": ["q", "p"], "o": {"x": 7, "y": "yy"}}
RULES = r'''
self.i == 5
self.i != 5
self.i + 1 > 2 && self.b
self.i < self.d
self.i == 5.0 || self.d > 7.0
self.i == 5u
!self.b
!!self.b
-self.i == -5
--self.i == 5
self.i - 1 == 4 ? self.b : !self.b
(self.b ? self.o : self.o).x == 7
self.b ? self.b : self.b
self.o.x == 7 && self.o.__in__ == 'kw' && self.o.a__dash__b == 3
self.nope == 1
self.o.nope == 1
self.i.x == 1
self.miss.q == ''
has(self.miss)
has(self.miss.q)
has(self.o.x) && has(self.o.y)
has(self.i)
has(self)
has(self.i + 1)
has(self.n)
self.s == 'hello'
self.s != self.u
self.s.startsWith('he')
self.s.endsWith('lo') && self.u.contains('wö')
self.s.matches('^h.*o$')
self.u.matches('[a-')
self.s.matches('\\d+')
self.s.size() == 5
size(self.u) == 11
self.u.upperAscii() == 'HéLLO WöRLD'
self.s.lowerAscii().trim() == 'hello'
self.s.charAt(1) == 'e'
self.s.charAt(9) == ''
self.s.indexOf('l') == 2 && self.s.lastIndexOf('l') == 3
self.s.indexOf('l', 3) == 3
self.s.lastIndexOf('l', 2) == 2
self.s.replace('l', 'L') == 'heLLo'
self.s.replace('l', 'L', 1) == 'heLlo'
self.s.split('l') == ['he', '', 'o']
self.s.split('l', 2) == ['he', 'lo']
self.s.split('') == ['h', 'e', 'l', 'l', 'o']
self.s.substring(1, 3) == 'el'
self.s.substring(3, 1) == 'el'
self.s.substring(9) == ''
self.ls.join() == 'abbccc'
self.ls.join('-') == 'a-bb-ccc'
'%s is %d'.format([self.s, self.i]) == 'x'
'%s'.format([self.s]) == 'hello'
'%d %d'.format([self.i, self.i]) == '5 5'
'%.2f'.format([self.d]) == '1.50'
'%s'.format([self.l]) == '[3, 1, 2]'
'%x'.format([255]) == 'ff'
strings.quote(self.s) == '"hello"'
self.s + self.s == 'hellohello'
self.s < self.u
self.l[0] == 3
self.l[5] == 3
self.l[self.i] == 3
self.l[size(self.l) - 1] == 2
self.l['a'] == 3
3 in self.l
4 in [1, 2, 3, 4]
self.i in [1, 5]
self.s in self.ls
self.s in ['hello', 'x']
self.s in self.m
'a' in self.m
self.m['a'] == '1'
self.m.a == '1'
self.m['zz'] == '1'
self.m.size() == 2
self.l.all(x, x > 0)
self.l.exists(x, x == 2)
self.l.exists_one(x, x == 2)
self.l.filter(x, x > 1).size() == 2
self.l.map(x, x * 2) == [6, 2, 4]
self.l.map(x, x > 1, x * 2) == [6, 4]
self.l.map(x, x > 1, x * 2).sum() == 10
self.ls.map(x, x + '!').all(y, y.endsWith('!'))
self.ls.all(x, self.l.exists(y, y == x.size()))
self.m.all(k, self.m[k].size() == 1)
self.m.exists(k, k == 'b')
self.big.all(x, x.size() > 0)
self.big.all(x, self.big.exists(y, x == y))
self.l.all(x, x / 0 > 0)
self.l.exists(x, x / 0 > 0 || x == 2)
self.l.all(i, v, i < 3 && v > 0)
self.m.all(k, v, k != v)
self.m.exists(k, v, v == '2')
self.l.existsOne(i, v, v == 1)
self.l.exists_one(i, v, v == 1)
self.m.transformList(k, v, k + v).size() == 2
self.l.transformList(i, v, i > 0, v) == [1, 2]
self.m.transformMap(k, v, v + 'x') == {'a': '1x', 'b': '2x'}
self.m.transformMap(k, v, k == 'a', v) == {'a': '1'}
self.m.transformMapEntry(k, v, {v: k}) == {'1': 'a', '2': 'b'}
self.l.isSorted()
self.ls.isSorted()
self.l.sum() == 6
self.l.max() == 3 && self.l.min() == 1
self.l.indexOf(1) == 1 && self.l.lastIndexOf(9) == -1
self.ls.filter(x, x == 'zz').max() == 'a'
self.l + [4] == [3, 1, 2, 4]
self.lm == self.lm
self.set == ['q', 'p']
self.lm.exists(e, e.k == 'a' && e.v == 1)
self.lm.map(e, e.k) == ['a', 'b']
(self.lm + [{'k': 'a', 'v': 9}]).size() == 2
oldSelf.lm == self.lm
self.lm == oldSelf.lm
self.set == oldSelf.set
self.l == oldSelf.l
self.i >= oldSelf.i
self.o == oldSelf.o
self.ios == 80
self.ios == '80'
type(self.ios) == int
type(self.s) == string
type(self.l) == list
self.ios > 70
self.ios.startsWith('8')
self.t > timestamp('2024-01-01T00:00:00Z')
self.t.getFullYear() == 2024 && self.t.getMonth() == 1 && self.t.getDate() == 29
self.t.getDayOfWeek() == 4 && self.t.getDayOfYear() == 59 && self.t.getMilliseconds() == 500
self.t.getHours('+02:00') == 12
self.t + duration('1h') > self.t
self.t - self.t == duration('0s')
self.dur == duration('90m')
self.dur.getHours() == 1 && self.dur.getMinutes() == 90
duration('xyz') == self.dur
timestamp('nope') == self.t
string(self.dur) == '5400s'
string(self.t) == '2024-02-29T10:20:30.500Z'
self.by == b'hi'
string(self.by) == 'hi'
bytes(self.s) == b'hello'
int('42') == 42
int(self.s) == 42
int('x') == 42
int(self.d) == 1
double(self.i) == 5.0
uint(self.i) == 5u
string(self.i) == '5' && string(self.d) == '1.5' && string(self.b) == 'true'
bool('true') == self.b
self.i / 0 == 1
self.i % 0 == 1
9223372036854775807 + self.i > 0
9223372036854775808 > self.i
dyn(self.i) + 'a' == 'b'
dyn(self.i) == 5
dyn(self.s).foo == 1
dyn(self.l)[0] == 3
dyn(self.o).x == 7
self.i + self.s == 'x'
self.s.foo()
foo(self.s)
foo == 1
self.s.startsWith(1)
size(self.i) == 1
self.l == ['a']
[1, 'a'] == self.l
{'a': 1, 'b': 'c'}.size() == 2
[1, 2] == self.l
[] == self.l
{} == self.m
[dyn(1), dyn('a')].size() == 2
[1, dyn('a')].size() == 2
{'a': self.i}.a == 5
{'a': self.i}['b'] == 5
optional.of(self.i).hasValue()
optional.none().hasValue()
self.?miss.?q.orValue('') == ''
self.?o.?y.orValue('') == 'yy'
self.?o.y.hasValue()
self.m[?'a'].orValue('') == '1'
self.m[?'zz'].orValue('') == ''
self.l[?1].hasValue()
self.?miss.optMap(v, v.q).hasValue()
self.?o.optMap(v, v.x + 1).orValue(0) == 8
self.?o.optFlatMap(v, v.?y).orValue('') == 'yy'
optional.of(self.miss).hasValue()
[?self.?s, ?self.?s].size() == 2
{?'a': self.?s}.size() == 1
self.?s.value() == 'hello'
self.?miss.value().q == ''
self.?miss.or(self.?miss).hasValue()
url('https://example.com:80/a/b?c=d').getHost() == 'example.com:80'
url(self.u).getHost() == ''
url('https://example.com:80/').getPort() == '80' && url('https://example.com:80/').getHostname() == 'example.com'
url('https://example.com/x y').getEscapedPath() == '/x%20y'
url('https://e.com/?k=v&k=w').getQuery() == {'k': ['v', 'w']}
isURL(self.s)
isURL('https://a')
self.s.find('l+') == 'll'
self.u.findAll('[a-z]+').size() == 4
self.u.findAll('[a-z]', 2) == ['h', 'l']
quantity('1.5Gi').isGreaterThan(quantity('1G'))
quantity('50k') == quantity('50000')
quantity('50M').isInteger() && quantity('50k').asInteger() == 50000
quantity('1.5').isInteger()
quantity('9999999999999999999999999G').asInteger() == 1
quantity(self.s).sign() == 1
isQuantity(self.s)
quantity('50k').add(quantity('20k')).compareTo(quantity('70k')) == 0
quantity('50k').sub(20).asApproximateFloat() > 1.0
sign(quantity('-3')) == -1
ip('192.168.0.1').family() == 4
ip(self.s).family() == 4
isIP(self.s) || isIP('::1')
ip.isCanonical('::0001')
ip('127.0.0.1').isLoopback() && ip('fe80::1').isLinkLocalUnicast()
cidr('192.168.0.0/24').containsIP('192.168.0.9')
cidr('192.168.0.0/24').containsIP(ip('192.168.1.9'))
cidr('192.168.0.0/16').containsCIDR('192.168.3.0/24')
cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24')
cidr('192.168.0.1/24').prefixLength() == 24 && cidr('192.168.0.1/24').ip() == ip('192.168.0.1')
isCIDR('10.0.0.0/33')
format.dns1123Label().validate(self.s).hasValue()
format.dns1123Label().validate('A_b').value() == ['x']
!format.named('uuid').value().validate(self.s).hasValue()
format.named('nope').hasValue()
!format.dns1123Subdomain().validate(self.u).hasValue()
semver('1.2.3').isLessThan(semver('1.10.0-rc.1'))
semver('1.2').major() == 1
semver('v1.2', true).minor() == 2
isSemver(self.s)
sets.contains(self.l, [1, 2])
sets.intersects(self.ls, ['zz'])
sets.equivalent(self.l, [1, 2, 3, 3])
self.n == ''
self.p.z == 1
has(self.p.z)
self.en == 'aa'
true
1
self.i
self.b == null
null == null
self.s ==
self.s == 'x' &&
(self.s
self.l.all(x)
self.l.all(x, x > 0
self.l.all(1, true)
self.l.map(x.y, true).size() == 1
self.s = 'a'
self.s == "a' 
self. == 1
self.s == @
self.for == 1
for == 1
{'a': 1
[1, 2
self.l.all(x, x > 0) self.b
self.s == 'a' 'b'
1 + * 2
Foo{a: 1} == 1
x.y.z == 1
self.l.all(x, y > 0)
self.i.all(x, true)
self.s == 'héé' && self.zz
self.i == 1 &&
    self.zz == 2
self.i == 1 && self.b && self.i == 2 && self.b && self.i == 5
self.i == 1 || self.i == 2 || self.i == 3 || self.i == 5
self.b && self.i
self.i || self.s
self.b ? 1 : 'a'
(self.b ? [1] : [2]).size() == 1
(self.b ? self.l : [2]).size() == 3
(self.b ? self.s : self.u) == 'hello'
'a' == "a" && r'\d' == '\\d' && b'\x00' == b'\000'
0x1F == 31 && 1e3 == 1000.0 && .5 == 0.5
'\u00e9' == 'é'
lists.range(3) == [0, 1, 2]
self.l.sort() == [1, 2, 3]
self.l.reverse() == [2, 1, 3]
cel.bind(x, 1, x == 1)
math.greatest(1, 2) == 2
authorizer.allowed()
'''

def cases():
    lines, out = RULES.strip('\n').split('\n'), []
    for line in lines:
        if line.startswith('    ') and out:
            out[-1] += '\n' + line
        else:
            out.append(line)
    return [{"schema": SCHEMA, "rule": rule, "self": SELF, "oldSelf": OLD} for rule in out]

json.dump(cases(), sys.stdout, ensure_ascii=False)
